"""Reads a page as a strict browser would: every element closed, in order."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "br", "hr", "col", "link", "img", "input"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    children: "list[Element]" = field(default_factory=list)
    text: str = ""

    def all(self, name: str) -> "list[Element]":
        found = [self] if self.name == name else []
        return found + [each for child in self.children for each in child.all(name)]

    @property
    def whole_text(self) -> str:
        return self.text + "".join(child.whole_text for child in self.children)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.open[-1].text += data


def parse(page: str) -> Element:
    """The document; fails where it is not well-formed."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1, f"not closed: {[each.name for each in reader.open[1:]]}"
    return reader.open[0]


def cells(table: Element) -> list[list[str]]:
    """Texts of a table, the heads first."""
    return [
        [cell.whole_text for cell in row.children if cell.name in ("td", "th")]
        for row in table.all("tr")
    ]


def table_of(page: Element, caption: str) -> list[list[str]]:
    """Texts of the one table whose caption begins with ``caption``."""
    (found,) = (
        table
        for table in page.all("table")
        if table.all("caption")[0].whole_text.startswith(caption)
    )
    return cells(found)
