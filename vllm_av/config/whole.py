"""The block within a whole ``--speculative-config``.

Rule: of vLLM's own keys only those are read that decide about the block; the rest is vLLM's.
"""

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vllm_av.config.block import BLOCK, Facts, Verdict, canonical, examine_block, limited
from vllm_av.config.text import shown
from vllm_av.drafters import KEPT, DrafterType, drafter_type
from vllm_av.errors import Code, ConfigError

FLAG = "enable_adaptive_verification"
ARGUMENT = "--speculative-config"
_OURS = (BLOCK, FLAG)
_WHOLE = frozenset({*_OURS, "draft_sample_method", "method", "model", "num_speculative_tokens"})
_BOOL = TypeAdapter(bool)  # as vLLM's own config reads it


@dataclass(frozen=True)
class Document:
    """What a text was taken for, and what came of it.

    Args:
        whole: the speculative config with vLLM's spelling of its keys; None for a bare block.
        verdict: about the block; None where a whole config has none.
    """

    whole: dict[str, Any] | None
    verdict: Verdict | None

    @property
    def took(self) -> str:
        """In words."""
        return "a bare block" if self.whole is None else "a whole speculative config"

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """Of the verdict."""
        return self.verdict.errors if self.verdict else ()

    @property
    def enabled(self) -> bool:
        """Whether adaptive verification is on; a bare block is there for nothing else."""
        return self.whole is None or switched_on(self.whole)

    def block(self) -> dict[str, Any] | None:
        """The canonical block that is in force; None where adaptive verification is off.

        Raises:
            ConfigError: there are mistakes.
        """
        if self.verdict:
            return canonical(self.verdict.require())
        return canonical(examine_block({}, Facts()).require()) if self.enabled else None

    def filled(self) -> dict[str, Any]:
        """A whole speculative config with every default of the block written out.

        Raises:
            ConfigError: there are mistakes.
        """
        block = self.block()
        whole = {FLAG: True} if self.whole is None else self.whole
        return whole if block is None else {**whole, BLOCK: block}


def examine(document: object) -> Document:
    """Take ``document`` for a whole config or a bare block, by its keys, and check it."""
    try:
        document = require_object(document)
    except ConfigError as error:
        return Document(None, Verdict(None, (error,)))
    keys = [_spelt(key) for key in document]
    if not (_WHOLE.intersection(keys) or any(key_meant(key) for key in keys)):
        return Document(None, examine_block(document, Facts()))
    spec = {_spelt(key): value for key, value in document.items()}
    return Document(spec, examine_spec(document))


def require_object(document: object) -> Mapping[Any, Any]:
    """``document``, which must be an object.

    Raises:
        ConfigError: ``AV-CONFIG-OBJECT``.
    """
    if isinstance(document, Mapping):
        return document
    raise ConfigError(
        Code.CONFIG_OBJECT,
        given=f"the config is {shown(document)}",
        allowed=f"a JSON object: a whole {ARGUMENT}, or the block {BLOCK} alone",
        fix="write an object, {...}",
    )


def examine_spec(spec: Mapping[Any, Any], *, know_method: bool = True) -> Verdict | None:
    """Check the block within a whole config; None where there is none and nothing is wrong.

    Args:
        spec: keys with dashes or underscores, as vLLM takes both.
        know_method: whether ``method`` is the last word; vLLM may still find another one,
            except for :data:`vllm_av.drafters.KEPT`.
    """
    keys = [_spelt(key) for key in spec]
    errors = [_twice(key) for key, times in Counter(keys).items() if times > 1 and key in _OURS]
    spec = dict(zip(keys, spec.values(), strict=True))
    for key in keys:
        if meant := key_meant(key):
            errors.append(_misspelt(key, meant))
            # What is meant is checked too.
            if meant == FLAG or isinstance(spec[key], Mapping):
                spec.setdefault(meant, spec[key])
    block, on = spec.get(BLOCK), switched_on(spec)
    count, method = spec.get("num_speculative_tokens"), spec.get("method")
    if not isinstance(method, str):
        method = None
    parallel = _true(spec.get("parallel_drafting"))
    row = drafter_type(method, parallel=parallel) if method else None
    if on and method and row and not row.estimates and (know_method or method in KEPT):
        errors.append(_no_estimates(method, row))
        method = None  # said once
    if block is not None and not on:
        errors.append(_off(spec.get(FLAG)))
    verdict = None
    if block is not None or on:
        facts = Facts(
            num_speculative_tokens=count if type(count) is int and count >= 1 else None,
            method=method if know_method else None,
            has_draft_logits=not _true(spec.get("use_local_argmax_reduction")),
        )
        verdict = examine_block({} if block is None else block, facts)
        errors += verdict.errors
    if errors:
        return Verdict(None, limited(errors))
    return None if block is None else verdict


def switched_on(spec: Mapping[str, Any]) -> bool:
    """Whether vLLM will take the flag for true."""
    return _true(spec.get(FLAG))


def argument(spec: Mapping[str, Any]) -> str:
    """``--speculative-config '...'``, quoted for a shell."""
    return f"{ARGUMENT} {shlex.quote(json.dumps(spec, allow_nan=False))}"


def _true(value: object) -> bool:
    try:
        return _BOOL.validate_python(value)
    except ValidationError:
        return False


def _spelt(key: object) -> str:
    return str(key).replace("-", "_")


def key_meant(key: str) -> str | None:
    """Our key that ``key`` is a misspelling of."""
    near = get_close_matches(key.lower(), _OURS, n=1, cutoff=0.85)
    return near[0] if near and key not in _OURS else None


def _misspelt(key: str, meant: str) -> ConfigError:
    return ConfigError(
        Code.CONFIG_KEY,
        given=f"the speculative config has the unknown key {shown(key)}",
        allowed=f"vLLM's own keys, {FLAG} and {BLOCK} among them",
        fix=f"write {meant}",
    )


def _twice(key: str) -> ConfigError:
    return ConfigError(
        Code.CONFIG_KEY,
        given=f"the speculative config has the key {key} with dashes and with underscores",
        allowed="one of the two spellings",
        fix="remove one",
    )


def _no_estimates(method: str, row: DrafterType) -> ConfigError:
    parallel = " and parallel_drafting" if row.parallel else ""
    other = "remove parallel_drafting" if row.parallel else "draft with one of these"
    return ConfigError(
        Code.CONFIG_METHOD,
        given=f"{FLAG} is true, with the method {shown(method)}{parallel}, which cannot have it "
        f"({row.refusal})",
        allowed="adaptive verification with EAGLE, MTP, DFlash, DSpark or a draft model",
        fix=f"set {FLAG} to false, or {other}",
    )


def _off(flag: object) -> ConfigError:
    return ConfigError(
        Code.CONFIG_OFF,
        given=f"{BLOCK} is set, and {FLAG} is {'not' if flag is None else shown(flag)}",
        allowed="the block only where adaptive verification is switched on",
        fix=f'add "{FLAG}": true, or remove the block',
    )
