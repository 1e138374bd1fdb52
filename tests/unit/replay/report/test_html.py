"""Text stays text, whatever it holds."""

import pytest

from tests.unit.replay.report.reading import cells, parse
from vllm_av.replay.report.html import Markup, escaped, shortened, table, tag, text

HOSTILE = "</style><script>alert(1)</script>\"'&<img src=x onerror=y>"


def test_text_is_escaped_and_markup_is_not() -> None:
    made = tag("p", HOSTILE, tag("b", "x"), title=HOSTILE)
    (p,) = parse(made).children
    assert p.text == HOSTILE
    assert p.attributes == {"title": HOSTILE}
    assert [child.name for child in p.children] == ["b"]


def test_a_sequence_is_escaped_part_by_part() -> None:
    assert escaped(["<", ["&", Markup("<i>")]]) == "&lt;&amp;<i>"


def test_attributes() -> None:
    made = tag(
        "rect", x=1.0, y=2.126, width=100, hidden=True, class_="a", aria_label=None, id=False
    )
    assert made == '<rect x="1" y="2.13" width="100" hidden="" class="a"></rect>'


def test_a_void_element_is_not_closed() -> None:
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


@pytest.mark.parametrize("seen", ["\x00", "\x1b", "\u202e", "\u200b", "\ud800", "\ufeff", "\u2028"])
def test_what_turns_text_about_is_shown_as_a_replacement(seen: str) -> None:
    assert text(f"a{seen}b") == "a\ufffdb"
    assert tag("p", f"a{seen}b").encode().decode() == "<p>a\ufffdb</p>"


def test_lines_become_spaces_and_other_languages_stay() -> None:
    assert text("a\nb\tc") == "a b c"
    assert text("Prüfung 文書 ✓") == "Prüfung 文書 ✓"


def test_long_names_are_cut() -> None:
    assert text("x" * 10, 10) == "x" * 10
    assert text("x" * 11, 10) == "x" * 9 + "…"
    assert len(shortened("y" * 10_000)) == 60


def test_a_table_has_its_heads_and_cells() -> None:
    made = table("About", ("Name", "A", "B"), [("x", "1", "2")], spans=[("", 1), ("both", 2)])
    (found,) = parse(made).all("table")
    assert cells(found) == [["", "both"], ["Name", "A", "B"], ["x", "1", "2"]]
    assert found.all("caption")[0].text == "About"
    scopes = [cell.attributes["scope"] for cell in found.all("th")]
    assert scopes == ["colgroup", "col", "col", "col", "row"]
    assert [cell.attributes.get("class") for cell in found.all("tr")[2].children] == [
        None,
        "n",
        "n",
    ]
