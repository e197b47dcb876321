"""A savepoint in the making, table by table: written anew, or kept from another savepoint. Driver. Needs no Spark.

A draft is no savepoint until :meth:`Draft.finish`. Stopped anywhere, the same call goes on: the claim says what the
folder is for, and what is written again is named by what is in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_ckpt import clock
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.faults import reach
from spark_ckpt.jobs._savepoint_target import SavepointMark, claim
from spark_ckpt.jobs._savepoints import copy_folder, read_mark
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.protocol.events import GroupManifest, groups_to_json
from spark_ckpt.protocol.records import SAVEPOINT, CompletionRecord, TableRef, Topology
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage.content import TableContent, content_to_json
from spark_ckpt.storage.delta_schema import to_delta_schema
from spark_ckpt.storage.filesystem import Folder, normalize_url
from spark_ckpt.storage.job_paths import JOB_RECORD, SAVEPOINT_RECORD, JobPaths
from spark_ckpt.storage.manifest import StateManifest, read_manifest, write_manifest
from spark_ckpt.storage.record_store import Exists, RecordStore
from spark_ckpt.storage.state_table import publish_written

FIRST = 1
"""The checkpoint id of a savepoint that came from none."""


class Draft:
    """The savepoint ``target``, an empty folder, made of ``source`` or of nothing.

    ``said``: what is asked for, as JSON; the same words after a crash mean the same savepoint.
    """

    def __init__(self, target: Savepoint, job: str, source: Savepoint | None, said: Mapping[str, Any]) -> None:
        self.target, self.job, self.source = target, job, source
        self.old = None if source is None else source.record()
        self.checkpoint = FIRST if self.old is None else self.old.checkpoint
        came_from = None if self.old is None else [self.old.life, self.old.completed_ms]
        text = json.dumps([said, came_from], sort_keys=True, default=str)
        self.life = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._tables: dict[str, TableRef] = {}

    @property
    def mark(self) -> SavepointMark:
        return SavepointMark(self.job, self.life, self.checkpoint)

    def begin(self) -> None:
        """Claim the folder. Raises ``InvalidInputError`` if it is not free: also where the same steps were finished, as
        nobody can tell whether they had the same rows."""
        store = self.target.store
        if read_mark(store) == self.mark:
            raise InvalidInputError(
                f"{redact_url(store.url)} holds a finished savepoint of these steps, perhaps of other rows: use it, or "
                "choose an empty folder (`spark-ckpt dispose` removes it)"
            )
        claim(store, self.mark, self._job_around())
        # Stopped from here on: the claim says what the files are, and the same call goes on.
        reach("written savepoint claimed")

    def _job_around(self) -> str | None:
        """The folder of a job that the target is in."""
        dir = normalize_url(self.target.config.dir)
        if not self.target.path.startswith(f"{dir}/"):
            return None
        job = f"{dir}/{self.target.path[len(dir) + 1 :].partition('/')[0]}"
        return job if RecordStore(job, self.target.store.storage_options).exists(JOB_RECORD) else None

    def folder(self, table: str) -> Folder:
        """Of a state table."""
        store = self.target.store
        return Folder(JobPaths(store.url).state(table), store.storage_options, store.folder.retry)

    def put(self, table: str, schema: pa.Schema, content: TableContent, groups: Mapping[int, GroupManifest]) -> None:
        """State files that are there become the state table ``table``, with all of its key groups."""
        publish_written(self.folder(table), content, schema)
        # Stopped here: a table that no manifest names; the same call writes both again.
        reach("written table published")
        manifest = StateManifest(table, self.checkpoint, 0, to_delta_schema(schema), content, groups)
        self._tables[table] = TableRef(0, write_manifest(self.target.store, manifest, _token(content, groups)))

    def keep(self, table: str) -> None:
        """The state table of the source, as it is."""
        assert self.source is not None
        assert self.old is not None
        ref, store = self.old.tables[table], self.source.store
        copy_folder(Folder(JobPaths(store.url).state(table), store.storage_options), self.folder(table))
        manifest = read_manifest(store, ref.manifest)
        self._tables[table] = TableRef(ref.version, write_manifest(self.target.store, manifest, "savepoint"))

    def keep_sources(self, uids: list[str]) -> None:
        """What sources of the source need to understand their offsets."""
        assert self.source is not None
        for uid in uids:
            there = Folder(JobPaths(self.target.path).source(uid), self.target.store.storage_options)
            copy_folder(Folder(JobPaths(self.source.path).source(uid), self.source.store.storage_options), there)

    def finish(self, topology: Topology, sources: Mapping[str, Mapping[str, Any]]) -> None:
        """It is a savepoint from now on. Raises ``InvalidInputError`` if another one took the folder."""
        store, now_ms = self.target.store, clock.now_ms()
        record = CompletionRecord(
            self.checkpoint, SAVEPOINT, 0, 0, -1, 0, sources, self._tables, (), topology, now_ms, now_ms, life=self.life
        )
        if self.old is not None:
            record = replace(record, hook=self.old.hook, drained=self.old.drained, shown=self.old.shown)
        reach("written state complete")
        # Last: before it the folder is no savepoint.
        made = store.create(SAVEPOINT_RECORD, "savepoint", {"job": self.job, "record": record.to_json()})
        if isinstance(made, Exists) and read_mark(store) != self.mark:
            raise InvalidInputError(f"{redact_url(store.url)} was taken by another savepoint at the same time")

    def give_up(self) -> None:
        """Remove what was begun: nothing was made of it."""
        self.target.dispose(force=True)


def _token(content: TableContent, groups: Mapping[int, GroupManifest]) -> str:
    """Of attempts at one savepoint with other rows, each has a manifest of its own."""
    text = json.dumps([content_to_json(content), groups_to_json(groups)], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
