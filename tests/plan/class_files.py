"""Which classes are in jars, and what they are made of, without a JVM: the heads of their class files."""

from __future__ import annotations

import functools
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from spark_ckpt.spark_versions import spark_version

_WIDTHS = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes behind the tag of an entry of the constant pool (The Java Virtual Machine Specification, 4.4)."""
_UTF8, _CLASS, _TWO_ENTRIES, _ABSTRACT = 1, 7, (5, 6), 0x0400


of_the_newest = pytest.mark.skipif(spark_version() < (4, 2), reason="the ledgers name what newer versions have, too")


@dataclass(frozen=True)
class ClassFile:
    name: str
    bases: tuple[str, ...]
    is_abstract: bool


@functools.cache
def classes_of_spark() -> dict[str, ClassFile]:
    """Those of Catalyst and of Spark's SQL."""
    folder = Path(pyspark.__file__).parent / "jars"
    jars = [jar for name in ("catalyst", "sql", "sql-api") for jar in folder.glob(f"spark-{name}_*.jar")]
    return classes_of(jars, "org/apache/spark/")


def classes_of(jars: list[Path], package: str) -> dict[str, ClassFile]:
    """Those of ``package`` and of the packages below it, by their full names with slashes."""
    found = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.startswith(package) and entry.endswith(".class"):
                    made = parsed(archive.read(entry))
                    found[made.name] = made
    return found


def parsed(data: bytes) -> ClassFile:
    count, place, index = struct.unpack(">H", data[8:10])[0], 10, 1
    pool: dict[int, object] = {}
    while index < count:
        tag = data[place]
        if tag == _UTF8:
            (length,) = struct.unpack(">H", data[place + 1 : place + 3])
            pool[index] = data[place + 3 : place + 3 + length].decode("utf-8", "replace")
            place += 3 + length
        else:
            if tag == _CLASS:
                pool[index] = struct.unpack(">H", data[place + 1 : place + 3])[0]
            place += 1 + _WIDTHS[tag]
        index += 2 if tag in _TWO_ENTRIES else 1
    flags, this, base, interfaces = struct.unpack(">HHHH", data[place : place + 8])
    others = struct.unpack(f">{interfaces}H", data[place + 8 : place + 8 + 2 * interfaces])
    name, *bases = (str(pool[pool[i]]) for i in (this, *filter(None, (base, *others))))  # type: ignore[index]
    return ClassFile(name, tuple(bases), bool(flags & _ABSTRACT))


def below(classes: dict[str, ClassFile], base: str) -> set[str]:
    """The classes that are a ``base``, directly or not, and may have objects."""
    known: dict[str, bool] = {base: True}

    def is_one(name: str) -> bool:
        if name not in known:
            known[name] = False
            known[name] = any(is_one(b) for b in classes[name].bases) if name in classes else False
        return known[name]

    return {name for name, made in classes.items() if name != base and is_one(name) and not made.is_abstract}
