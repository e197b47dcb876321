"""Files that tasks staged for an Iceberg table: which there are, and which of them the table knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO

if TYPE_CHECKING:
    from pyiceberg.table import Table


def base_name(location: str) -> str:
    return location.rstrip("/").rsplit("/", 1)[-1]


def present(table: Table, prefix: str) -> dict[str, str]:
    """Data files whose names begin with ``prefix``: name -> location. Lists all of the table's data folder."""
    folder = table.properties.get("write.data.path") or f"{table.location().rstrip('/')}/data"
    scheme, netloc, path = PyArrowFileIO.parse_location(folder, table.io.properties)
    files = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc)
    infos = files.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=True))
    found = [i.path for i in infos if i.type == pafs.FileType.File and i.base_name.startswith(prefix)]
    return {base_name(p): f"{folder.rstrip('/')}{p[len(path.rstrip('/')) :]}" for p in found}


def known(table: Table, names: Collection[str]) -> set[str]:
    """Those of ``names`` that any snapshot the table still has adds, keeps or deletes; it looks at the newest first."""
    wanted, found, seen = set(names), set[str](), set[str]()
    for snapshot in sorted(table.metadata.snapshots, key=lambda s: -s.timestamp_ms) if wanted else ():
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            found |= wanted.intersection(base_name(e.data_file.file_path) for e in entries)
            if found == wanted:
                return found
    return found


def remove_unknown(table: Table, locations: Iterable[str]) -> list[str]:
    """Delete those that no snapshot knows; the names of what was there and is gone."""
    files = {base_name(location): location for location in locations}
    there = {name: location for name, location in files.items() if table.io.new_input(location).exists()}
    kept = known(table, there)
    lost = sorted(name for name in there if name not in kept)
    remove(table, [there[name] for name in lost])
    return lost


def remove(table: Table, locations: Iterable[str]) -> None:
    """Delete files that no snapshot knows; one that is gone already is passed over."""
    for location in locations:
        with suppress(FileNotFoundError):
            table.io.delete(location)
