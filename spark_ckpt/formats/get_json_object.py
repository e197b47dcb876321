"""Spark's functions ``get_json_object``, ``json_array_length`` and ``json_object_keys`` over a column of texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.formats._json_reader import decoded, in_arrow
from spark_ckpt.formats._json_trees import NOTHING, Fraction, Members, Style, value, written

_STEP = re.compile(
    r"\.(?P<name>[^\s.\[*][^\s.\[]*)|\['(?P<quoted>[^\s'*][^']*)'\]|\[(?P<at>[0-9]{1,9})\]|\[(?P<all>\*)\]"
)
_ALL = object()
_HALF = re.compile("[\ud800-\udfff]")
_FEW = 512
_KINDS = {" to number in": pa.int64(), " to boolean in": pa.bool_(), " to string in": pa.string()}
"""What stands in Arrow's message when it finds one of these instead."""
_RAW, _QUOTED, _FLAT = "raw", "quoted", "flat"
"""How a string is written, and an array of several that are found: flat, within the array around it."""

Step = Any
"""A name, a number, or ``_ALL``."""


class GetJsonObject:
    """What stands at ``path`` of each text. ``shortest``: Spark's Java writes doubles as Java 19 does. Executor;
    made on the driver, picklable."""

    def __init__(self, path: str, shortest: bool) -> None:
        self.path, self.shortest = path, shortest
        steps = steps_of(path)
        assert steps is not None
        self._steps = steps
        self._fast = _ByArrow(steps) if steps and all(isinstance(step, str) for step in steps) else None

    def __reduce__(self) -> Any:
        return GetJsonObject, (self.path, self.shortest)

    def column(self, texts: pa.Array) -> pa.StringArray:
        """Null for null, for a text that is no JSON, and where there is nothing or null."""
        texts = texts.cast(pa.binary())
        columns, pending = list[pa.Array](), [texts]
        while pending:
            part = pending.pop()
            column = self._fast.column(part) if self._fast else None
            if column is not None:
                columns.append(column)
            elif self._fast is None or len(part) <= _FEW or self._fast.often_fails():
                columns.append(self._one_by_one(part))
            else:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]]
        return pa.concat_arrays(columns) if len(columns) > 1 else columns[0]

    def _one_by_one(self, texts: pa.BinaryArray) -> pa.StringArray:
        found = [None if text is None else self._of(value(text)) for text in _texts(texts)]
        return pa.array(found, pa.string())

    def _of(self, root: Any) -> str | None:
        out = _Writer(Style(True, self.shortest))
        found = root is not NOTHING and _write(root, self._steps, 0, _RAW, out)
        text = "".join(out.parts) if found else None
        return None if text is None or (not text.isascii() and _HALF.search(text)) else text


class _ByArrow:
    """Texts all of which have, at the end of these names, a string, a whole number, a boolean or nothing."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._kind = pa.string()
        self._tries = self._failures = 0

    def often_fails(self) -> bool:
        return self._failures > 8 and self._failures * 2 > self._tries

    def column(self, texts: pa.BinaryArray) -> pa.StringArray | None:
        """None if there is something else, or Spark may read one of them otherwise."""
        if self.often_fails():
            return None
        self._tries += 1
        there = pc.fill_null(pc.greater(pc.binary_length(texts), 0), False)
        objects = texts if pc.all(there).as_py() else pc.if_else(there, texts, pa.scalar(b"{}"))
        try:
            return self._read(objects)
        except pa.ArrowInvalid as error:
            kind = next((kind for said, kind in _KINDS.items() if said in str(error)), None)
        try:
            self._kind = kind or self._kind
            return None if kind is None else self._read(objects)
        except pa.ArrowInvalid:
            return None
        finally:
            self._failures += 1

    def _read(self, objects: pa.BinaryArray) -> pa.StringArray:
        kind: Any = self._kind
        for name in self._names[:0:-1]:
            kind = pa.struct([(name, kind)])
        found = in_arrow(objects, pa.struct([(self._names[0], kind)])).column(0).combine_chunks()
        return (pc.struct_field(found, list(self._names[1:])) if self._names[1:] else found).cast(pa.string())


class JsonArrayLength:
    """As Spark's ``json_array_length``: null for what is no array. Executor."""

    def column(self, texts: pa.Array) -> pa.Int32Array:
        found = [value(text) if text else NOTHING for text in _texts(texts)]
        return pa.array([len(one) if _is_array(one) else None for one in found], pa.int32())


class JsonObjectKeys:
    """As Spark's ``json_object_keys``: null for what is no object. Executor."""

    def column(self, texts: pa.Array) -> pa.ListArray:
        found = [value(text) if text else NOTHING for text in _texts(texts)]
        names = [[_HALF.sub("?", n) for n, _ in one] if isinstance(one, Members) else None for one in found]
        return pa.array(names, pa.list_(pa.string()))


def _is_array(value: Any) -> bool:
    return isinstance(value, list) and not isinstance(value, Members)


def steps_of(path: str) -> tuple[Step, ...] | None:
    """None for a path that Spark may read in another way, or not at all."""
    at, found = 1, list[Step]()
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        at = step.end()
        found.append(_ALL if step["all"] else int(step["at"]) if step["at"] else step["name"] or step["quoted"])
    return tuple(found) if path.startswith("$") else None


def _texts(texts: pa.Array) -> Iterable[str | None]:
    """``texts`` are strings or binary."""
    try:
        return texts.cast(pa.string()).to_pylist()
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return [None if text is None else decoded(text) for text in texts.cast(pa.binary()).to_pylist()]


class _Writer:
    """As the generator that Spark writes with: it separates values, also those that no object or array is around."""

    def __init__(self, style: Style) -> None:
        self.parts: list[str] = []
        self.style = style
        self._counts = [0]

    def value(self, text: str) -> None:
        if self._counts[-1]:
            self.parts.append("," if len(self._counts) > 1 else " ")
        self._counts[-1] += 1
        self.parts.append(text)

    def start(self) -> None:
        self.value("[")
        self._counts.append(0)

    def end(self) -> None:
        self._counts.pop()
        self.parts.append("]")


def _write(here: Any, steps: tuple[Step, ...], at: int, style: str, out: _Writer) -> bool:
    """What the ``steps`` from number ``at`` lead to. Whether that is something; some may have been written for nothing,
    as in Spark."""
    if at == len(steps):
        return _write_found(here, style, out)
    step = steps[at]
    if isinstance(here, Members):
        return isinstance(step, str) and any(
            name == step and inner is not None and _write(inner, steps, at + 1, style, out) for name, inner in here
        )
    if not isinstance(here, list) or isinstance(step, str):
        return False
    if step is _ALL:
        return _write_all(here, steps, at + 1, style, out)
    if step >= len(here):
        return False
    several = steps[at + 1 : at + 2] == (_ALL,)
    return _write(here[step], steps, at + 1, _QUOTED if several else style, out)


def _write_found(here: Any, style: str, out: _Writer) -> bool:
    if style is _RAW and isinstance(here, str) and not isinstance(here, Fraction):
        out.parts.append(here)
        return True
    if style is _FLAT and _is_array(here):
        plain = list(_flat(here))
        for one in plain:
            out.value(written(one, out.style))
        return bool(plain)
    out.value(written(here, out.style))
    return True


def _flat(array: list[Any]) -> Iterable[Any]:
    """What is in arrays within it, too."""
    pending = [iter(array)]
    while pending:
        one = next(pending[-1], NOTHING)
        if one is NOTHING:
            pending.pop()
        elif _is_array(one):
            pending.append(iter(one))
        else:
            yield one


def _write_all(array: list[Any], steps: tuple[Step, ...], at: int, style: str, out: _Writer) -> bool:
    """Of each element; ``at``: the step behind. A single one that is found stands without brackets, as in Hive."""
    twice = steps[at : at + 1] == (_ALL,)
    if twice or style is _QUOTED:
        out.start()
        found = [_write(one, steps, at + twice, _FLAT if twice else _QUOTED, out) for one in array]
        out.end()
        return any(found)
    apart = _Writer(replace(out.style, escaped=False))
    apart.start()
    count = sum(_write(one, steps, at, _QUOTED if style is _RAW else style, apart) for one in array)
    apart.end()
    if count:
        text = "".join(apart.parts)
        out.value(text if count > 1 else text[1:-1])
    return count > 0
