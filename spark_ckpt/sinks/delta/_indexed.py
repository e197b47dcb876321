"""Which columns a Delta table wants statistics of. Pure; driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from spark_ckpt.sinks.delta._stats import Leaf, Path, leaves

_COLUMNS, _NUMBER = "delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols"


def indexed(schema: pa.Schema, partitions: Sequence[str], configuration: Mapping[str, str]) -> frozenset[Path] | None:
    """Paths of the leaves that the table's properties ask statistics of; None where they say nothing.

    Named columns count ahead of a number of columns; a struct stands for all of its fields. A number counts leaves,
    in the order of the table's columns; -1 is all.
    """
    found = [leaf for leaf in leaves(schema) if leaf.path[0] not in partitions]
    if _COLUMNS in configuration:
        named = [tuple(_lower(path)) for path in _split(configuration[_COLUMNS])]
        return frozenset(leaf.path for leaf in found if any(_is_below(leaf, path) for path in named))
    if _NUMBER not in configuration:
        return None
    number = int(configuration[_NUMBER])
    return frozenset(leaf.path for leaf in (found if number < 0 else found[:number]))


def _is_below(leaf: Leaf, path: Path) -> bool:
    return tuple(_lower(leaf.path[: len(path)])) == path


def _lower(path: Sequence[str]) -> Iterator[str]:
    return (name.lower() for name in path)


def _split(text: str) -> list[Path]:
    """``a, b.c, `d.e` `` as paths: a dot or a comma within backticks is part of the name, and two of these are one."""
    paths: list[Path] = []
    names, name, quoted = [], "", False
    at = 0
    while at <= len(text):
        c = text[at] if at < len(text) else ","
        if c == "`":
            if quoted and text[at + 1 : at + 2] == "`":
                name, at = name + "`", at + 1
            else:
                quoted = not quoted
        elif c in ".," and (not quoted or at >= len(text)):
            names.append(name)
            name = ""
            if c == ",":
                paths.append(tuple(n.strip() for n in names))
                names = []
        else:
            name += c
        at += 1
    return [path for path in paths if path != ("",)]
