"""Tells a mistake in a config before vLLM loads anything for it.

Two of vLLM's functions are wrapped: the one that makes a ``SpeculativeConfig`` of the engine's
arguments, since that class would complain of an unknown key in its own many lines, or take a
configuration for granted that this vLLM cannot have; and the one that defines the command line,
since a text that is no JSON ends there.

Rule: a config that does not speak of adaptive verification passes through untouched.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from vllm_av.errors import Code, ConfigError
from vllm_av.seams import command, note
from vllm_av.seams.contract import Seams

_BLOCK = "adaptive_verification_config"
_FLAG = "--speculative-config"
_SPEAKS_OF_US = re.compile(r"adaptive.?verification", re.IGNORECASE)
_OURS = "__vllm_av_before__"
_OF_CHECK = Code.CONFIG_METHOD


def connect(seams: Seams) -> None:
    """Wrap ``EngineArgs`` where vLLM has one in this process; again is fine.

    A worker has none, and needs none.
    """
    module = sys.modules.get("vllm.engine.arg_utils")
    kind = getattr(module, "EngineArgs", None)
    if kind is None:
        return
    make = getattr(kind, "create_speculative_config", None)
    if make is not None and not hasattr(make, _OURS):
        kind.create_speculative_config = _checked(make, seams)
    define = getattr(kind, "add_cli_args", None)
    if define is not None and not hasattr(define, _OURS):
        kind.add_cli_args = staticmethod(_with_json_checked(define))


def check(spec: Mapping[Any, Any], seams: Seams) -> None:
    """Refuse a block that is wrong by itself, or that this vLLM cannot read.

    What a right block cannot have beside the rest of the config is left to ``check``, which tells
    all of that at once.

    Args:
        spec: the speculative config as the user wrote it.
        seams: what this vLLM has.

    Raises:
        ConfigError: ``AV-CONFIG-UNPATCHED``, or the first mistake.
    """
    if not any(_SPEAKS_OF_US.search(str(key)) for key in spec):
        return
    if seams is not Seams.ALL:
        if any(str(key).replace("-", "_") == _BLOCK for key in spec):
            raise _unpatched(seams)
        return
    from vllm_av.config.whole import examine_spec

    verdict = examine_spec(spec, know_method=False)
    wrong = [error for error in verdict.errors if error.code is not _OF_CHECK] if verdict else []
    if wrong:
        raise wrong[0].among(tuple(wrong[1:]))


def read_argument(text: str, read: Callable[[str], Any]) -> Any:
    """The value of ``--speculative-config``.

    Args:
        text: what the user wrote.
        read: vLLM's own reader.

    Raises:
        argparse.ArgumentTypeError: ``AV-CONFIG-JSON`` or ``AV-CONFIG-OBJECT``, where the text
            speaks of us and is not JSON, gives a key twice or is no object.
    """
    if not _SPEAKS_OF_US.search(text):
        return read(text)
    from vllm_av.config.text import read_object
    from vllm_av.config.whole import require_object

    try:
        require_object(read_object(text, "this text"))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return read(text)


def _checked(make: Callable[..., Any], seams: Seams) -> Callable[..., Any]:
    @wraps(make)
    def create_speculative_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        spec = getattr(self, "speculative_config", None)
        if isinstance(spec, Mapping):
            tokens = getattr(self, "spec_tokens", None)
            check(spec if tokens is None else {**spec, "num_speculative_tokens": tokens}, seams)
            if command.in_program() and any(_SPEAKS_OF_US.search(str(key)) for key in spec):
                note.offer()
        return make(self, *args, **kwargs)

    setattr(create_speculative_config, _OURS, make)
    return create_speculative_config


def _with_json_checked(define: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(define)
    def add_cli_args(parser: Any, *args: Any, **kwargs: Any) -> Any:
        parser = define(parser, *args, **kwargs)
        action = getattr(parser, "_option_string_actions", {}).get(_FLAG)
        read = getattr(action, "type", None)
        if action is not None and callable(read):
            # Of a type, argparse tells the name.
            action.type = wraps(read)(lambda text: read_argument(text, read))
            _let_nothing_replace_a_block(action)
        return parser

    setattr(add_cli_args, _OURS, define)
    return add_cli_args


def _let_nothing_replace_a_block(action: Any) -> None:
    """Of two ``--speculative-config`` argparse keeps the last, and so drops a block in silence.

    vLLM makes a second one of ``--speculative-config.key value``, and of a ``--config`` file.
    """
    kind: Any = type(action)

    class Once(kind):  # type: ignore[misc]
        def __call__(
            self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
        ) -> None:
            before = getattr(namespace, self.dest, None)
            if before is not None and before != values and _SPEAKS_OF_US.search(str(before)):
                raise argparse.ArgumentError(self, str(_given_twice()))
            super().__call__(parser, namespace, values, option_string)

    action.__class__ = Once


def _given_twice() -> ConfigError:
    return ConfigError(
        Code.CONFIG_JSON,
        given=f"{_FLAG} is given twice, and the second would replace the one with {_BLOCK} or "
        "its flag whole",
        allowed=f"one {_FLAG}, be it JSON, {_FLAG}.key value, or in a --config file",
        fix="write everything into one of them",
    )


def _unpatched(seams: Seams) -> ConfigError:
    state = "not patched" if seams is Seams.NONE else "patched in part"
    return ConfigError(
        Code.CONFIG_UNPATCHED,
        given=f"{_BLOCK} is set, and this vLLM is {state}",
        allowed="the block with a vLLM that has vllm_av's core patches",
        fix="run `vllm-av patch apply`, or remove the block",
    )
