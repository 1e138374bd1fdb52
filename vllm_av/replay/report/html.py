"""HTML and SVG by elements, so that no text of a trace can become markup.

Rule: a plain string is text and is escaped; only what :func:`tag` made is markup. Characters that
a page cannot hold or that turn its text about (controls, bidirectional marks) show as U+FFFD.
"""

import html
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeAlias

_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
"""Unicode's categories of controls, formats, what is no character, and line separators."""

_VOID = {"meta", "br", "hr", "col"}


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


Content: TypeAlias = "str | Iterable[Content]"


def text(value: str, limit: int = 200) -> str:
    """``value`` as readable text of at most ``limit`` characters; not escaped yet."""
    seen = "".join(
        " " if c in "\t\n\r" else "\ufffd" if unicodedata.category(c) in _UNSEEN else c
        for c in value[: limit + 1]
    )
    return seen if len(seen) <= limit else seen[: limit - 1] + "…"


def shortened(name: str) -> str:
    """A name of the trace for a table or a sentence."""
    return text(name, 60)


def escaped(content: Content) -> Markup:
    """``content`` as markup: escaped unless it is markup; the parts of a sequence one by one."""
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(html.escape(text(content, len(content)), quote=True))
    return Markup("".join(map(escaped, content)))


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """One element.

    Args:
        attributes: ``class_`` is ``class``, other underscores are hyphens; None and False leave an
            attribute out, True gives it without a value's meaning. Numbers have two decimals.
    """
    written = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        if isinstance(value, str):
            shown = escaped(value)
        else:
            shown = Markup("" if value is True else f"{value:.2f}".rstrip("0").rstrip("."))
        written += f' {key.rstrip("_").replace("_", "-")}="{shown}"'
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{escaped(content)}</{name}>")


def table(
    caption: Content,
    head: Sequence[Content],
    rows: Iterable[Sequence[Content]],
    *,
    spans: Sequence[tuple[Content, int]] = (),
    words: int = 1,
    quiet: bool = False,
) -> Markup:
    """A table that scrolls by itself where the page is narrow.

    Args:
        head: the titles of the columns.
        rows: cells, as many as ``head`` has; the first names its row.
        spans: titles over several columns and how many, in order.
        words: so many columns from the left hold words, the others numbers.
        quiet: the caption is for those who hear the page only.
    """

    def cell(column: int, content: Content) -> Markup:
        style = None if column < words else "n"
        if column == 0:
            return tag("th", content, scope="row")
        return tag("td", content, class_=style)

    titles = [
        tag("th", each, scope="col", class_=None if column < words else "n")
        for column, each in enumerate(head)
    ]
    over = [
        tag("th", each, colspan=columns, scope="colgroup") if each else tag("td", colspan=columns)
        for each, columns in spans
    ]
    body = [tag("tr", [cell(i, each) for i, each in enumerate(row)]) for row in rows]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="unseen" if quiet else None),
            tag("thead", tag("tr", over) if over else "", tag("tr", titles)),
            tag("tbody", body),
        ),
        class_="scroll",
        tabindex="0",
    )
