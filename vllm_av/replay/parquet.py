"""From Parquet to NumPy columns, whatever the file holds.

Rule: nothing that pyarrow raises reaches the user; each fault is one line with a code. Integers
and floats of other widths are taken where their values fit.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from vllm_av.errors import Code, TraceError, told
from vllm_av.replay.columns import COLUMNS, METADATA_KEY, VERSION, Column
from vllm_av.replay.info import TraceInfo

PART = "part-{:06d}.parquet"
PARTS = "part-" + "[0-9]" * 6 + ".parquet"
_FIX = "write the trace as docs/trace-format.md says"
_MAX_PARTS = 100_000


def require_pyarrow() -> Any:
    """The library.

    Raises:
        TraceError: ``AV-TRACE-LIBRARY``.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TraceError(
            Code.TRACE_LIBRARY,
            given=f"traces need pyarrow, which does not import here ({error})",
            allowed="an environment with the extra packages for traces",
            fix='pip install "vllm_av[traces]"',
        ) from error
    return pyarrow


def read_columns(
    path: Path, where: str, wanted: list[str]
) -> tuple[TraceInfo, dict[str, NDArray[Any]], dict[str, tuple[str, ...]]]:
    """What a trace says about itself, its columns, and the words of those that hold words.

    Args:
        path: a file, or a folder of parts.
        where: names the trace in an error.
        wanted: those to read; the required ones must be there.

    Raises:
        TraceError: anything that is wrong with the file itself; not what its rows say together.
    """
    pa = require_pyarrow()
    with _readable(where):
        files = _files(path, where)
        first = _schema(pa, files[0])
        info = _info(first, where)
        names = _names(first, where, wanted)
        tables = []
        for file in files:
            schema = first if file is files[0] else _schema(pa, file)
            said = info if file is files[0] else _info(schema, f"{file.name} of {where}")
            # The budget may have admitted everything up to some part.
            same = said.model_copy(update={"censoring": info.censoring}) == info
            if not same or _types(schema) != _types(first):
                raise TraceError(
                    Code.TRACE_INFO,
                    given=f"{file.name} of {where} is of another recording than {files[0].name}",
                    allowed="parts with the same columns and the same metadata",
                    fix="keep each recording in a folder of its own",
                )
            if said.censoring == "budget":
                info = said
            with _opened(pa, file) as opened:
                tables.append(opened.read(columns=names))
        table = pa.concat_tables(tables)
        columns: dict[str, NDArray[Any]] = {}
        words: dict[str, tuple[str, ...]] = {}
        for name in names:
            column = COLUMNS[name]
            if column.kind == "words":
                columns[name], words[name] = _numbered(pa, table[name])
            else:
                columns[name] = _array(pa, column, table[name], where)
    return info, columns, words


@contextmanager
def _readable(where: str) -> Iterator[None]:
    try:
        yield
    except TraceError:
        raise
    # pyarrow raises its own kinds and many of Python's for what a damaged file makes of it.
    except Exception as error:
        raise _unreadable(where, told(error).partition("\n")[0][:200]) from error


def _unreadable(where: str, reason: str) -> TraceError:
    return TraceError(
        Code.TRACE_FILE,
        given=f"{where} cannot be read as a trace: {reason}",
        allowed=f"a Parquet file, or a folder of {PART.format(0)}, {PART.format(1)}, ...",
        fix="correct the path, or record again",
    )


def _files(path: Path, where: str) -> list[Path]:
    if path.is_dir():
        files = sorted(path.glob(PARTS))
        if not files:
            raise _unreadable(where, "the folder holds no part")
        if len(files) > _MAX_PARTS:
            raise _unreadable(where, f"the folder holds more than {_MAX_PARTS:,} parts")
    else:
        files = [path]
    for file in files:
        if not file.is_file():  # a pipe would be waited for
            raise _unreadable(where, "no such file" if not file.exists() else "it is not a file")
    return files


def _opened(pa: Any, file: Path) -> Any:
    return pa.parquet.ParquetFile(file, page_checksum_verification=True)


def _schema(pa: Any, file: Path) -> Any:
    with _opened(pa, file) as opened:
        return opened.schema_arrow


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _info(schema: Any, where: str) -> TraceInfo:
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        raise _bad_info(where, f"has no key {METADATA_KEY.decode()} in its schema's metadata")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad_info(where, "says of itself what is not JSON") from error
    if not isinstance(found, dict):
        raise _bad_info(where, "says of itself what is not a JSON object")
    version = found.get("version")
    if type(version) is not int:
        raise _bad_info(where, "says of itself a wrong version")
    if version != VERSION:
        raise TraceError(
            Code.TRACE_VERSION,
            given=f"{where} is of version {version}",
            allowed=f"version {VERSION}",
            fix="read it with the vllm_av that wrote it, or record again",
        )
    try:
        return TraceInfo.model_validate(found)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in wrong["loc"])
        raise _bad_info(where, f"says of itself a wrong {key} ({wrong['msg']})") from error


def _bad_info(where: str, what: str) -> TraceError:
    allowed = '{"version": 1, "num_speculative_tokens": K, "censoring": "none" or "budget", ...}'
    return TraceError(Code.TRACE_INFO, given=f"{where} {what}", allowed=allowed, fix=_FIX)


def _names(schema: Any, where: str, wanted: list[str]) -> list[str]:
    """Those of ``wanted`` that are there, each of its type."""
    found = []
    for name in wanted:
        column = COLUMNS[name]
        places = schema.get_all_field_indices(name)
        if not places and not column.required:
            continue
        if len(places) != 1:
            times = "no column" if not places else f"{len(places)} columns"
            raise _bad_column(where, f"{times} {name}", "one")
        kind = schema.field(places[0]).type
        if column.nullable and str(kind) == "null":  # what pyarrow makes of nothing but None
            continue
        if not _fits(column, kind):
            raise _bad_column(where, f"the column {name} of the type {kind}", column.kind)
        found.append(name)
    return found


def _bad_column(where: str, what: str, allowed: str) -> TraceError:
    if allowed == "words":
        allowed = "dictionary<string>"
    return TraceError(Code.TRACE_COLUMN, given=f"{where} has {what}", allowed=allowed, fix=_FIX)


def _fits(column: Column, kind: Any) -> bool:
    from pyarrow import types

    if column.kind == "words":
        inner = kind.value_type if types.is_dictionary(kind) else kind
        return bool(types.is_string(inner) or types.is_large_string(inner))
    if column.kind == "bool":
        return bool(types.is_boolean(kind))
    if column.kind == "float32":
        return bool(types.is_floating(kind))
    return bool(types.is_integer(kind))


def _array(pa: Any, column: Column, values: Any, where: str) -> NDArray[Any]:
    """[n] of the column's own type; null is NaN where it is allowed."""
    if values.null_count and not column.nullable:
        raise _bad_column(where, f"nulls in the column {column.name}", "a value in every row")
    if column.kind == "float32":
        found = values.cast(pa.float32(), safe=False).to_numpy()
        return np.ascontiguousarray(found, np.float32)
    if column.kind == "bool":
        return np.ascontiguousarray(values.to_numpy(), np.bool_)
    found = values.to_numpy()
    most = int(min(np.iinfo(column.kind).max, column.high))
    if len(found) and not (found.min() >= 0 and found.max() <= most):
        row = int(np.argmax((found < 0) | (found > most)))
        what = f"{found[row]} for {column.name} in row {row}"
        raise _bad_column(where, what, f"0 to {most}")
    return np.ascontiguousarray(found, column.kind)


def _numbered(pa: Any, values: Any) -> tuple[NDArray[Any], tuple[str, ...]]:
    """[n] int32 numbers into the words, -1 for null."""
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    merged = values.unify_dictionaries().combine_chunks()
    if isinstance(merged, pa.ChunkedArray):
        merged = merged.chunk(0) if merged.num_chunks else pa.array([], values.type)
    numbers = merged.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    words = merged.dictionary.to_pylist()
    # A dictionary may name a word twice, or hold a null.
    known = {word: n for n, word in enumerate(dict.fromkeys(w for w in words if w is not None))}
    place = np.array([*(known.get(word, -1) for word in words), -1], np.int32)
    return place[numbers], tuple(known)
