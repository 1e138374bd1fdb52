"""Graph modes and sizes, as vLLM settles them.

The values are those of vLLM 0.33.0's own ``create_engine_config``, asked with the same flags on a
pretended GPU; ``tests/contract/test_check_against_vllm.py`` asks again.
"""

import pytest

from vllm_av.errors import CheckError
from vllm_av.preflight.backends.gpus import named
from vllm_av.preflight.facts import Gpu
from vllm_av.preflight.flags import parse
from vllm_av.preflight.graphs import settle
from vllm_av.preflight.sizes import Sizes, capture_size, sizes

LAYERWISE = (
    "--kv-transfer-config.kv_connector=LMCacheConnectorV1 "
    "--kv-transfer-config.kv_connector_extra_config.use_layerwise=%s"
)


def on(name: str) -> Gpu:
    found = named(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("args", "mode"),
    [
        ("", "FULL_AND_PIECEWISE"),
        ("-O0", "NONE"),
        ("-O1", "PIECEWISE"),
        ("-O2", "FULL_AND_PIECEWISE"),
        ("-O3", "FULL_AND_PIECEWISE"),
        ("--enforce-eager", "NONE"),
        ("-cc.mode=0", "FULL_DECODE_ONLY"),
        ("-cc.mode=NONE", "FULL_DECODE_ONLY"),
        ("-cc.mode=1", "NONE"),
        ("-cc.mode=3", "FULL_AND_PIECEWISE"),
        ("-cc.cudagraph_mode=FULL", "FULL"),
        ("-cc.cudagraph_mode=full_decode_only", "FULL_DECODE_ONLY"),
        ("-cc.cudagraph_mode=2", "FULL"),
        ("-cc.cudagraph_mode=PIECEWISE", "PIECEWISE"),
        ("-cc.mode=0 -cc.cudagraph_mode=PIECEWISE", "NONE"),
        ("-O0 -cc.cudagraph_mode=FULL_DECODE_ONLY", "FULL_DECODE_ONLY"),
        ("-O0 -cc.cudagraph_mode=FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"),
        ("-cc.splitting_ops=[]", "FULL"),
        ("-cc.splitting_ops=[] -cc.cudagraph_mode=PIECEWISE", "NONE"),
        ("-cc.pass_config.fuse_attn_quant=true", "FULL"),
        ("-cc.pass_config.fuse_attn_quant=true -cc.cudagraph_mode=PIECEWISE", "PIECEWISE"),
        (LAYERWISE % "true", "PIECEWISE"),
        (LAYERWISE % "false", "FULL_AND_PIECEWISE"),
    ],
)
def test_the_graph_mode_follows_from_the_flags(args: str, mode: str) -> None:
    assert settle(parse(args.split()), {}, on("h100"), 0).mode == mode


def test_what_else_decides_about_graphs() -> None:
    def mode(args: str = "", gpu: str = "h100", experts: int = 0, **variables: str) -> str:
        return settle(parse(args.split()), variables, on(gpu), experts).mode

    assert mode(gpu="cpu") == "NONE"
    assert mode("-pcp 2", "mi300x") == "PIECEWISE"
    assert mode("-pcp 2") == "FULL_AND_PIECEWISE"
    assert mode("--enable-sleep-mode", "xpu") == "NONE"
    assert mode("-cc.pass_config.fuse_attn_quant=true", "xpu") == "FULL_AND_PIECEWISE"
    assert mode("--enable-sleep-mode") == "FULL_AND_PIECEWISE"
    assert mode(TORCH_COMPILE_DISABLE="1") == "FULL_DECODE_ONLY"
    assert mode("-cc.mode=0", VLLM_USE_BREAKABLE_CUDAGRAPH="1") == "FULL_AND_PIECEWISE"
    deepep = "--all2all-backend deepep_high_throughput -dp 2"
    assert mode(deepep, experts=8) == "NONE"
    assert mode(deepep) == "FULL_AND_PIECEWISE"


@pytest.mark.parametrize("args", ["-cc.cudagraph_mode=FUL", "-cc.cudagraph_mode=9", "-cc.mode=4"])
def test_a_mode_that_vllm_does_not_have_is_a_mistake(args: str) -> None:
    with pytest.raises(CheckError, match=r"AV-QUESTION-FLAG"):
        settle(parse([args]), {}, on("h100"), 0)


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("a100", Sizes(256, 2048)),
        ("sm80", Sizes(256, 2048)),
        ("l40s", Sizes(256, 2048)),
        ("h100", Sizes(1024, 8192)),
        ("sm90", Sizes(1024, 8192)),
        ("b200", Sizes(1024, 16384)),
        ("b300", Sizes(1024, 16384)),
        ("rtx5090", Sizes(256, 2048)),
        ("rtx-pro-6000", Sizes(1024, 8192)),
        ("gb10", Sizes(256, 2048)),
        ("mi300x", Sizes(1024, 16384)),
        ("mi250", Sizes(256, 2048)),
        ("rx7900xtx", Sizes(256, 2048)),
        ("cpu", Sizes(128, 2048)),
    ],
)
def test_a_servers_own_sizes_on_a_gpu(gpu: str, expected: Sizes) -> None:
    assert sizes(on(gpu)) == expected


def test_what_else_decides_about_sizes() -> None:
    gpu = on("h100")
    assert sizes(None) == Sizes(256, 2048)
    assert sizes(gpu, throughput=True) == Sizes(2048, 16384)
    assert sizes(gpu, max_num_seqs=4, max_model_len=1000) == Sizes(4, 4000)
    assert sizes(gpu, max_num_batched_tokens=512) == Sizes(512, 512)
    assert sizes(gpu, max_model_len=32768, chunked=False) == Sizes(1024, 32768)
    assert sizes(on("cpu"), ranks=2) == Sizes(256, 4096)


@pytest.mark.parametrize(
    ("gpu", "seqs", "tokens", "query_len", "more", "expected"),
    [
        ("h100", 1024, 8192, 8, {}, 512),
        ("b200", 1024, 16384, 8, {}, 1024),
        ("gb300", 1024, 16384, 8, {}, 1024),
        ("thor", 1024, 8192, 8, {}, 512),
        ("h100", 16, 8192, 8, {}, 256),
        ("h100", 1, 8192, 8, {}, 16),
        ("h100", 3, 8192, 6, {}, 32),
        ("h100", 64, 100, 8, {}, 100),
        ("h100", 64, 8192, 1, {}, 128),
        ("h100", 1024, 8192, 8, {"largest": 2048}, 2048),
        ("h100", 1024, 8192, 8, {"largest": 100}, 96),
        ("h100", 1024, 512, 8, {"largest": 2048}, 512),
        ("h100", 1024, 8192, 8, {"listed": [8, 300, 16]}, 300),
        ("h100", 1024, 200, 8, {"listed": [8, 300, 16]}, 16),
    ],
)
def test_how_far_graphs_are_captured(
    gpu: str, seqs: int, tokens: int, query_len: int, more: dict[str, int], expected: int
) -> None:
    assert capture_size(on(gpu), Sizes(seqs, tokens), query_len, **more) == expected  # type: ignore[arg-type]
