"""The state of an operator as a checkpoint or a savepoint has it: all of it, one key, and what changed. No Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from spark_ckpt import shown
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.jobs._state_changes import changes
from spark_ckpt.protocol.records import FAMILY_OF, CompletionRecord, Topology
from spark_ckpt.state.keys.keys import equal_keys, key_group_of
from spark_ckpt.state.keys.spark_hash import hashes_of, normalised
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.stored_form import StoredForm
from spark_ckpt.storage import at_once
from spark_ckpt.storage.content import FileEntry, TableContent
from spark_ckpt.storage.delta_schema import from_delta_schema
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.manifest import StateManifest, read_manifest
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.storage.state_rows import live_rows, read_rows
from spark_ckpt.types import KEY_GROUP, KEY_HASH, TIMEOUT_MS

_LOWER = (1 << 32) - 1


@dataclass(frozen=True)
class StateFiles:
    """What a task needs to read the files of a state table. ``form``: its columns, and what they are in files."""

    url: str
    storage: Mapping[str, Any] = field(repr=False)
    form: StoredForm
    content: TableContent

    @property
    def schema(self) -> pa.Schema:
        """The state's columns by the names of the operator, and the key hash."""
        return self.form.layout.stored_schema

    @property
    def folder(self) -> Folder:
        return Folder(self.url, self.storage)

    def rows(self, file: str) -> Iterator[pa.RecordBatch]:
        """The live rows of ``file``."""
        return self.of(file, live_rows(self.folder, self.content[file]))

    def of(self, file: str, rows: BitMap, hashes: tuple[int, int] | None = None) -> Iterator[pa.RecordBatch]:
        """``rows`` of ``file``; a column that it was written without is null, or what a migration says."""
        for table in read_rows(self.folder, file, rows, hashes):
            for batch in table.drop_columns([KEY_GROUP]).to_batches():
                yield self.form.read(batch)


class State(Hinting):
    """The state of operator ``uid`` (or of a family of its rows, ``uid.name``) at ``checkpoint``. Nothing is read until
    a method asks for it. What a job's retention removes (``spark.ckpt.retain``) cannot be read any more.

    Columns have the operator's names and types: the keys, the values and, with time-outs, ``_timeout_ms``.
    """

    def __init__(
        self, store: RecordStore, record: CompletionRecord, uid: str, at: Callable[[int], State] | None = None
    ) -> None:
        if uid not in record.tables:
            raise InvalidInputError(
                f"checkpoint {record.checkpoint} has no state of {uid!r}, only of {list(record.tables)}"
            )
        self.uid, self.checkpoint = uid, record.checkpoint
        self._store, self._record, self._at = store, record, at

    def __repr__(self) -> str:
        return f"State({self.uid!r}, checkpoint={self.checkpoint})"

    def _repr_html_(self) -> str | None:
        return shown.html("state", self)

    # -- all of it -----------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns. Reads a manifest."""
        return _shown(self._files(self._manifest()).schema)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the operator's key columns, which :meth:`get` takes values of. Reads a manifest."""
        return tuple(self._key_columns(self._manifest()))

    def spark_schema(self) -> dict[str, Any]:
        """The columns as the JSON form of Spark's ``StructType``."""
        stored = self._stored()
        body: dict[str, Any] = json.loads(self._manifest().schema)
        kept = [f for f in body["fields"] if f["name"] not in (KEY_GROUP, KEY_HASH)]
        return {**body, "fields": [{**f, "name": stored.get(f["name"], f["name"])} for f in kept]}

    def arrow(self) -> pa.Table:
        """All rows, in this process's memory. Raises ``CorruptStorageError`` if a file is missing or damaged."""
        files = self._files(self._manifest())
        rows = [b for found in at_once.made(lambda file: list(files.rows(file)), files.content) for b in found]
        return pa.Table.from_batches(rows, files.schema).select(_shown(files.schema).names)

    def head(self, rows: int) -> pa.Table:
        """Some ``rows`` rows, the first that are found, as :meth:`arrow`. Reads no more row groups than it needs."""
        files, found, missing = self._files(self._manifest()), [], rows
        for batch in (b for f in files.content for b in files.rows(f)):
            found.append(batch.slice(0, missing))
            missing -= len(found[-1])
            if missing <= 0:
                break
        return pa.Table.from_batches(found, files.schema).select(_shown(files.schema).names)

    def pandas(self) -> Any:
        """As :meth:`arrow`, a pandas DataFrame."""
        return self.arrow().to_pandas()

    def files(self) -> StateFiles:
        """For readers that divide the work: its content names the files."""
        return self._files(self._manifest())

    # -- one key -------------------------------------------------------------------------------------------------

    def get(self, *key: Any, **named: Any) -> list[dict[str, Any]]:
        """The rows of one key: at most one, or, of a family, any number. Reads the files only that its key group has.

        ``key``: its values, in the order of the operator's key columns; or ``named``, by their names. Raises
        ``InvalidInputError`` for other columns, or a value that is not of a column's type::

            orders = spark_ckpt.job("/data/checkpoints", "orders")
            orders.state("totals").get("alice")  # [{"customer": "alice", "n": 3, "total": 120}]
        """
        manifest = self._manifest()
        files, keys = self._files(manifest), self._key_columns(manifest)
        wanted = self._wanted(files.schema, keys, key, named)
        columns = [normalised(c) for c in wanted.columns]
        hashes = hashes_of(wanted.columns)
        group = manifest.groups.get(int(key_group_of(hashes, self._record.topology.key_groups)[0]))
        upper = int(hashes[0]) & ~_LOWER  # of a family's rows, the lower half tells those of a key apart
        found = [
            batch
            for file, rows in _of_runs(group, manifest.content).items()
            for batch in files.of(file, rows & live_rows(files.folder, manifest.content[file]), (upper, upper | _LOWER))
        ]
        mine = [_with_key(batch, pa.RecordBatch.from_arrays(columns, names=keys)) for batch in found]
        table = pa.Table.from_batches(mine, files.schema)
        out: list[dict[str, Any]] = table.select(_shown(files.schema).names).to_pylist()
        return out

    def _wanted(
        self, schema: pa.Schema, keys: list[str], key: tuple[Any, ...], named: Mapping[str, Any]
    ) -> pa.RecordBatch:
        given = dict(zip(keys, key, strict=False)) if not named else dict(named)
        if given.keys() != set(keys) or len(key) not in (0, len(keys)) or (key and named):
            found = f"{len(key)} value(s)" if key else sorted(named)
            raise InvalidInputError(f"expected a value for each key column of {self.uid!r}, {keys}; found {found}")
        return pa.RecordBatch.from_arrays([_value(n, given[n], schema.field(n).type) for n in keys], names=keys)

    # -- what changed ----------------------------------------------------------------------------------------------

    def diff(self, before: int | State, after: int | State | None = None) -> pa.Table:
        """What changed from ``before`` to ``after`` (None: this state), by key. Each is a retained checkpoint's id, or
        a state: of another job, or of a savepoint, as to see that state that was written is what a stream made::

            made = spark_ckpt.savepoint("/data/backfilled").state("totals")
            assert not spark_ckpt.job("/data/checkpoints", "orders").state("totals", 42).diff(made).num_rows

        A row a key: the key columns (of a family also those that tell its rows apart), ``_change`` (``added``,
        ``removed`` or ``changed``), and the other columns as structs ``_before`` and ``_after``, null where there was
        no such key. Of one job, files that both have, with the same rows, are not read; else all rows of both come
        into this process's memory. Raises ``InvalidInputError`` for an id at a savepoint, which has one checkpoint, and
        if the key columns are others.
        """
        old, new = self._other(before), self if after is None else self._other(after)
        manifests = old._manifest(), new._manifest()
        keys = [s._identity(m) for s, m in zip((old, new), manifests, strict=True)]
        if keys[0] != keys[1]:
            raise InvalidInputError(f"expected the same key columns, found {keys[0]} of {old!r}, {keys[1]} of {new!r}")
        parts = [s._files(m) for s, m in zip((old, new), manifests, strict=True)]
        return changes(parts[0], parts[1], keys[0])

    def _other(self, which: int | State) -> State:
        if isinstance(which, State):
            return which
        if self._at is None:
            raise InvalidInputError(
                f"{self!r} is of a savepoint, which has one checkpoint: expected another state in place of {which}"
            )
        return self._at(which)

    # -- what the records say ------------------------------------------------------------------------------------

    def _manifest(self) -> StateManifest:
        return read_manifest(self._store, self._record.tables[self.uid].manifest)

    def _stored(self) -> dict[str, str]:
        """Name in files -> name."""
        return {s: n for n, s in self._record.topology.operators[self.uid].get("stored", {}).items()}

    def _files(self, manifest: StateManifest) -> StateFiles:
        stored, facts = self._stored(), self._record.topology.operators[self.uid]
        table = [f.with_name(stored.get(f.name, f.name)) for f in from_delta_schema(manifest.schema)]
        columns = {f.name: f for f in table if f.name not in (KEY_GROUP, KEY_HASH, TIMEOUT_MS)}
        keys = self._identity(manifest)
        key_schema = pa.schema([columns.pop(name) for name in keys])
        timed = any(f.name == TIMEOUT_MS for f in table)
        form = StoredForm.told(StateLayout(key_schema, pa.schema(list(columns.values())), timed), facts, dict)
        content = {file: entry for file, entry in manifest.content.items() if entry.in_table}
        return StateFiles(JobPaths(self._store.url).state(self.uid), self._store.storage_options, form, content)

    def _identity(self, manifest: StateManifest) -> list[str]:
        """The columns by which its rows are told apart."""
        stored = self._stored()
        names = [stored.get(n, n) for n in from_delta_schema(manifest.schema).names]
        return key_names(str(self._record.topology.operators[self.uid]["keys"]), names)

    def _key_columns(self, manifest: StateManifest) -> list[str]:
        """Those of the operator, of a family, too."""
        own = self._identity(manifest)
        owner = owner_of(self._record.topology, self.uid)
        return own if owner is None else key_names(str(self._record.topology.operators[owner]["keys"]), own)


def owner_of(topology: Topology, uid: str) -> str | None:
    """The operator whose family ``uid`` is; None if it is no family."""
    facts = topology.operators[uid]
    if FAMILY_OF in facts:
        return str(facts[FAMILY_OF])
    owners = [o for o in topology.operators if uid.startswith(f"{o}.")]  # as older releases tell it
    return max(owners, key=len, default=None)


def key_names(text: str, columns: list[str]) -> list[str]:
    """The first of ``columns`` that ``text`` tells of, which is ``name type, name type, ...``."""
    names, place = [], 0
    for name, following in zip(columns, [*columns[1:], None], strict=True):
        if not text.startswith(name, place) or text[place + len(name) : place + len(name) + 1] not in ("", " ", ","):
            break
        names.append(name)
        place = -1 if following is None else text.find(f", {following}", place + len(name))
        if place < 0:
            break
        place += 2
    return names


def _of_runs(group: Any, content: TableContent) -> dict[str, BitMap]:
    """File -> the rows of it that belong to the group, without those that were removed."""
    found: dict[str, BitMap] = {}
    for run in group.runs if group is not None else ():
        entry: FileEntry | None = content.get(run.file)
        if not run.tombstones and entry is not None and entry.in_table:
            found.setdefault(run.file, BitMap()).update(range(run.start, run.start + run.count))
    return found


def _with_key(batch: pa.RecordBatch, key: pa.RecordBatch) -> pa.RecordBatch:
    same = key.take(pa.array(np.zeros(len(batch), np.int64)))
    return batch.filter(pa.array(equal_keys(batch.select(key.schema.names), same)))


def _value(name: str, value: Any, kind: pa.DataType) -> pa.Array:
    """``value``, or a text of it, as the command line has it."""
    try:
        if isinstance(value, str) and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return pa.array([value]).cast(kind)
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(timezone.utc)  # Arrow may pass over the zone: PYARROW_IGNORE_TIMEZONE
        return pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"key column {name!r}: expected a value of type {kind}, found one of {type(value).__name__} that is none"
        ) from None


def _shown(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f for f in schema if f.name != KEY_HASH])
