"""A YAML document that somebody else wrote, read as far as a file of flags may go.

Rule: how deep it is and how many values its aliases stand for is known before anything is made of
it; a key that stands twice is no silent loss.
"""

from typing import Any

import yaml

from vllm_av.config.text import shown

_DEEPEST = 32
_MOST_VALUES = 10_000
_MERGE = "tag:yaml.org,2002:merge"


class DocumentError(Exception):
    """Why a text is not read."""


def load(text: str, *, strict: bool) -> Any:
    """The value of the one document in ``text``.

    Args:
        strict: whether a key that stands twice is refused; else the last one counts.

    Raises:
        DocumentError: it is no YAML, or more than a file of flags.
    """
    try:
        _look(text)
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _values(node, {}, strict)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError:
        raise DocumentError("it is not YAML") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # PyYAML's own words for a date that no calendar has, or a tag that does not fit.
        raise DocumentError("it holds a value that is not what it is said to be") from None


def _look(text: str) -> None:
    """Event by event, which needs no memory and stops at once."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise DocumentError(f"it is nested more than {_DEEPEST} deep")
        if count > 2 * _MOST_VALUES:
            raise DocumentError(f"it holds more than {_MOST_VALUES:,} values")


def _values(node: yaml.Node, counted: dict[int, int], strict: bool) -> int:
    """How many values a node stands for, those behind aliases each time.

    Args:
        counted: what is known, by the id of a node; 0 while it is being counted.
    """
    known = counted.get(id(node))
    if known == 0:
        raise DocumentError("it holds itself")
    if known is not None:
        return known
    counted[id(node)] = 0
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        if strict:
            _refuse_twice(node)
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    count = 1 + sum(_values(part, counted, strict) for part in parts)
    if count > _MOST_VALUES:
        raise DocumentError(f"it holds more than {_MOST_VALUES:,} values")
    counted[id(node)] = count
    return count


def _refuse_twice(node: yaml.MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        if (same := (key.tag, key.value)) in seen:
            raise DocumentError(
                f"the key {shown(key.value)} stands twice, of which vLLM takes the last"
            )
        seen.add(same)
