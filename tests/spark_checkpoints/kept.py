"""The checkpoints of plain Spark that ``make.py`` has made."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

from tests.spark_checkpoints.make import INPUT, LOCATION

_HERE = Path(__file__).parent
VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in _HERE.glob("*.tar.xz"))


def unpack(version: str, case: str, target: Path, source: Path) -> Path:
    """The checkpoint in a folder below ``target``, as if it had been written there, and had read the files of
    ``source``."""
    with _packed(version) as packed:
        packed.extractall(target, [m for m in packed if m.name.startswith(f"{case}/")], filter="data")
    for file in [p for p in (target / case).rglob("*") if p.is_file()]:
        content = file.read_bytes().replace(INPUT.encode(), f"file://{source}".encode())
        file.write_bytes(content.replace(LOCATION.encode(), f"file:{target / case}".encode()))
    return target / case


def expected(version: str, case: str) -> list[str]:
    """What that Spark put out behind the checkpoint, as texts that are sorted."""
    with _packed(version) as packed:
        found = packed.extractfile(f"{case}/expected.json")
        assert found is not None
        # PySpark 4.0 gives a processor NumPy's numbers of a list, which show themselves by another text.
        return sorted(re.sub(r"np\.int64\((-?\d+)\)", r"\1", text) for text in json.loads(found.read()))


def as_texts(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows as :func:`expected` has them."""
    return sorted(map(repr, rows))


def _packed(version: str) -> tarfile.TarFile:
    return tarfile.open(_HERE / f"{version}.tar.xz")
