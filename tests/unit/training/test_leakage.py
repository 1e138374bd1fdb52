"""What counts as near to a held-out prompt."""

import pytest

from vllm_av.training.leakage import Near, kept_back

PROMPT = "Set the first sequence to be compared. The second sequence is not changed."
SHORT = "How do vaccines work?"


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("def f():\n    '''\n    Set the first sequence\n    to be compared. The end.", True),
        ("Set the second sequence to be compared. The first sequence is not changed.", False),
        ("user\nHow do vaccines\nwork? assistant", True),
        ("How do vaccines help?", False),
        ("", False),
    ],
)
def test_more_than_a_quarter_of_the_runs_is_near(text: str, near: bool) -> None:
    # Of the 13 words' 8 runs of six, the first text has three.
    assert Near([PROMPT, SHORT])(text) is near


def test_what_is_about_a_held_out_file_is_kept_back() -> None:
    def row(workload: str, source: str, held_out: bool = False) -> dict[str, object]:
        return {"workload": workload, "source": source, "held_out": held_out}

    # The crc32 of "http/server.py" is a multiple of nine, that of "ast.py" is not.
    rows = [
        row("docs", "ast.parse"),
        row("code", "ast.py:7"),
        row("docs", "http.server.test"),
        row("code", "http/server.py:7"),
        row("instructions", "3"),
        row("humaneval", "HumanEval/1"),
        row("humaneval", "HumanEval/2", held_out=True),
    ]
    assert kept_back(rows, [""] * 7, [PROMPT]) == [False, False, True, True, False, False, True]
