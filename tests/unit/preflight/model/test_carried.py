"""The drafters that this package carries, read from their own folders."""

from pathlib import Path

import pytest

import vllm_av
from vllm_av.preflight.facts import LayerKind
from vllm_av.preflight.model import read_draft, read_target

DATA = Path(vllm_av.__file__).parent / "data"


def test_a_target_with_its_own_mtp_module() -> None:
    target = read_target(str(DATA / "mimo-mtp"))
    (group,) = target.groups
    assert (group.kind, group.count) == (LayerKind.FULL, 5)
    assert (group.head_size, group.num_heads, group.num_kv_heads) == (32, 6, 2)
    assert (target.vocab_size, target.dtype, target.experts) == (1024, "bfloat16", 0)
    draft = read_draft({"method": "mtp", "num_speculative_tokens": 3}, target)
    assert (draft.method, draft.type_name, draft.source) == ("mtp", "mtp", "the target's own")


@pytest.mark.parametrize(
    ("folder", "method", "type_name", "head", "draft_vocabulary"),
    [
        ("smollm2-dflash", "dflash", "dflash", False, 6144),
        ("smollm2-draft", None, "draft-model", False, 49152),
        ("smollm2-dspark", "dspark", "dspark", True, 6144),
        ("smollm2-eagle", "eagle", "eagle", False, 49152),
        ("smollm2-eagle3", "eagle3", "eagle3", False, 6144),
    ],
)
def test_a_drafter_of_its_own(
    folder: str, method: str | None, type_name: str, head: bool, draft_vocabulary: int
) -> None:
    target = read_target(str(DATA / "smollm2-draft"))  # its vocabulary is that of SmolLM2
    spec: dict[str, object] = {"model": str(DATA / folder), "num_speculative_tokens": 5}
    if method:
        spec["method"] = method
    draft = read_draft(spec, target)
    assert (draft.type_name, draft.num_speculative_tokens) == (type_name, 5)
    assert (draft.has_head, draft.draft_vocab_size, draft.vocab_size) == (
        head,
        draft_vocabulary,
        49152,
    )
    # The demonstration adds the rows of the target's head; what is carried has none.
    assert draft.output_head is False
