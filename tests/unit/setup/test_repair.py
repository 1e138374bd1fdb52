"""Which of torch's companions are removed, and when."""

import pytest

from ci.setup.repair import companions_to_remove

NMS = "RuntimeError: operator torchvision::nms does not exist"


@pytest.mark.parametrize(
    ("code", "output", "installed", "removed"),
    [
        (1, NMS, {"torch", "torchvision"}, ["torchvision"]),
        (
            1,
            NMS,
            {"torchvision", "torchaudio", "torchcodec"},
            ["torchaudio", "torchcodec", "torchvision"],
        ),
        (1, "OSError: libtorchaudio.so: undefined symbol", {"torchaudio"}, ["torchaudio"]),
        (0, NMS, {"torchvision"}, []),
        (1, "ModuleNotFoundError: No module named 'vllm'", {"torchvision"}, []),
        (1, NMS, {"torch"}, []),
    ],
    ids=["nms", "all three", "audio", "works", "something else", "none there"],
)
def test_the_decision(code: int, output: str, installed: set[str], removed: list[str]) -> None:
    assert companions_to_remove(code, output, installed) == removed
