"""One job in one folder: start it, let it die at a named place, and look at what it left, in storage and in sinks."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import psutil
import pyarrow as pa
import sqlalchemy as sa
from deltalake import DeltaTable, QueryBuilder

import spark_ckpt
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.start import checked_sinks
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.storage.content import run_files
from spark_ckpt.storage.manifest import StateManifest, read_manifest
from tests.kill.expected import N_ROWS, NUMBERED, TOTALS, Expected, Row, expected
from tests.kill.processes import Session, await_condition, environment
from tests.postgres_server import PASSWORD

JOB = "killed"
IN_RECOVERY = "in recovery: "
"""Before a kill: also where a start settles what earlier ones left. Otherwise only in a batch's commit and tasks."""

SCRIPT = Path(__file__).with_name("killed_job.py")


class KilledJob:
    """``merging``: the sink (``sql`` or ``delta``) that keeps the last row of each ``g``; the other keeps all rows.

    The appending sink comes first, so that a kill "after CommitSink" is one between the two sinks.
    """

    def __init__(self, folder: Path, database: str, merging: str, **plan: Any) -> None:
        self.folder = folder
        self.merging = merging
        self._engine = sa.create_engine(database, poolclass=sa.NullPool)
        sql, delta = {"url": database, "table": "out"}, {"path": str(folder / "delta")}
        (sql if merging == "sql" else delta)["mergeKeys"] = "g"
        sinks: list[tuple[str, dict[str, str]]] = [("sql", sql), ("delta", delta)]
        self._sinks = sorted(sinks, key=lambda s: s[0] == merging)
        self._live = folder / "live.json"
        self._plan = {
            "dir": str(folder), "master": "local[2]", "victim": "driver", "sources": 1, "sinks": self._sinks, **plan
        }  # fmt: skip
        if "remote" not in plan:
            self._plan["live"] = str(self._live)
        self.log = folder / "log"
        self.collected: list[str] = []

    @property
    def job(self) -> Job:
        return spark_ckpt.job(f"{self.folder}/jobs", JOB, checked_sinks([(k, dict(o)) for k, o in self._sinks]))

    # -- running -----------------------------------------------------------------------------------------------

    def start(self, *kills: str, **plan: Any) -> int:
        """Start the command and wait for its end; returns its exit code. It dies at ``kills``, or once at each."""
        scratch = self.folder / "tmp"
        scratch.mkdir()
        try:
            with self._session(*kills, **plan) as session:
                return session.wait()
        finally:
            shutil.rmtree(scratch)

    def _session(self, *kills: str, **plan: Any) -> Session:
        at = ";".join(f"{kill.removeprefix(IN_RECOVERY)}={self._marker(kill)}" for kill in kills)
        whole = {**self._plan, "in_recovery": any(k.startswith(IN_RECOVERY) for k in kills), **plan}
        whole["conf"] = {**whole.get("conf", {}), "spark.executorEnv.SPARK_CKPT_KILL_AT": at}
        env = environment(SPARK_CKPT_KILL_AT=at, TMPDIR=str(self.folder / "tmp"))
        return Session([sys.executable, str(SCRIPT), json.dumps(whole)], self.log, env)

    def die(self, kill: str) -> None:
        """Start the command and see the driver die at ``kill``."""
        code = self.start(kill)
        assert code == -signal.SIGKILL, f"expected death {kill}, found exit code {code}:\n{self.tail()}"
        assert self.was_killed(kill)

    def fail(self, kill: str) -> None:
        """Start the command and see the query fail because something of it died at ``kill``."""
        code = self.start(kill)
        assert code == 1, f"expected a failed query by death {kill}, found exit code {code}:\n{self.tail()}"
        assert self.was_killed(kill)

    def finish(self, *kills: str, **plan: Any) -> None:
        """Start the command and see it end well, in spite of ``kills``."""
        code = self.start(*kills, **plan)
        assert all(map(self.was_killed, kills))
        assert code == 0, f"expected a good end, found exit code {code}:\n{self.tail()}"

    def survive(self, kill: str) -> None:
        """Start the command, see something of it die at ``kill``, and start it again if that failed the query."""
        code = self.start(kill)
        assert self.was_killed(kill)
        if code != 0:
            self.check_after_death()
            self.finish()

    @contextmanager
    def halted(self, place: str) -> Iterator[Session]:
        """Start the command, which then stands still at ``place`` until it is resumed."""
        scratch = self.folder / "tmp-halted"
        scratch.mkdir()
        at = f"{place}={self._marker(place)}"
        env = environment(SPARK_CKPT_KILL_AT=at, SPARK_CKPT_KILL_SIGNAL="STOP", TMPDIR=str(scratch))
        whole = {**self._plan, "in_recovery": False, "tmp": str(scratch)}
        log = self.folder / "log-halted"
        with Session([sys.executable, str(SCRIPT), json.dumps(whole)], log, env) as session:
            await_condition(f"the halt {place}", lambda: self._has_halted(session, place))
            yield session
        shutil.rmtree(scratch)

    def _has_halted(self, session: Session, place: str) -> bool:
        assert session.process.poll() is None, f"it did not halt {place}:\n{session.log.read_text()[-6000:]}"
        return self.was_killed(place) and psutil.Process(session.process.pid).status() == psutil.STATUS_STOPPED

    def was_killed(self, kill: str) -> bool:
        return self._marker(kill).exists()

    def executors(self) -> set[str]:
        """The executors that ran the user's function, by process id."""
        return {p.name.split()[1] for p in self.folder.glob("executor *")}

    def tail(self) -> str:
        return self.log.read_text()[-6000:]

    def _marker(self, kill: str) -> Path:
        return self.folder / f"reached {kill}"

    # -- what must hold after every death ------------------------------------------------------------------------

    def check_storage(self) -> None:
        """Every completed checkpoint is whole, and its tables are the state that its source offset makes."""
        assert self.job.verify() == []
        for record in self.job.completed():
            want = expected(*offsets_of(record))
            assert self.state(record, TOTALS, "k", "n", "s") == want.totals
            assert self.state(record, NUMBERED, "g", "seq", "total") == want.numbered
            for uid in record.tables:
                self._check_manifest(record, uid)

    def check_sinks(self) -> None:
        """Each sink shows exactly the rows up to a checkpoint that is complete: no more, no less, none twice."""
        newest = {"sql": self.sql_checkpoint(), "delta": self.delta_checkpoint()}
        for sink, checkpoint in newest.items():
            upto = offsets_of(self.job.show(checkpoint)) if checkpoint else []
            assert self.sink_rows(sink) == self.sink_should(sink, expected(*upto)), f"{sink} at checkpoint {checkpoint}"

    def check_after_death(self) -> None:
        self.check_storage()
        self.check_sinks()

    # -- what must hold at the end -----------------------------------------------------------------------------

    def check_finished(self) -> None:
        """The result is that of a run without faults, and after ``gc`` nothing is left over."""
        self.check_after_death()
        everything = expected(*[N_ROWS] * self._plan["sources"])
        for sink in ("sql", "delta"):
            assert self.sink_rows(sink) == self.sink_should(sink, everything)
        self.collected = self.job.gc()
        self.check_storage()
        self.check_nothing_unnamed()
        self.check_live_state()
        self.check_no_secret()
        history = Counter(row["id"] for row in self.job.checkpoints())
        assert max(history.values()) == 1, f"checkpoints recorded twice in the history: {history}"

    def check_nothing_unnamed(self) -> None:
        """Staged rows, prepared transactions, orphan files, records of nothing: none stays."""
        assert self.staged_rows() == {}
        assert self.files("delta") == self._logged_delta_files()
        done = self.job.completed()
        for uid in (TOTALS, NUMBERED):
            named = set().union(*(self._manifest(c, uid).files for c in done))
            found = self.files(f"jobs/{JOB}/state/{uid}")
            own = {name for name in found if name.startswith("_ckpt/content-")}
            assert found - own == named
            assert len(own) == 1, f"content files of {uid}: {own}"
        manifests = {t.manifest for c in done for t in c.tables.values()}
        assert {f"manifests/{name}" for name in self.files(f"jobs/{JOB}/manifests")} == manifests
        self._check_records(done)

    def check_live_state(self) -> None:
        """What Spark's own state store names is there, and it is what the last checkpoint names."""
        if "live" not in self._plan:
            return
        newest = self.job.completed()[-1]
        live = {frozenset(files) for files in json.loads(self._live.read_text()).values()}
        named = {uid: run_files(self._manifest(newest, uid).groups) for uid in (TOTALS, NUMBERED)}
        assert live == {frozenset(files) for files in named.values()}
        for uid, files in named.items():
            assert files <= self.files(f"jobs/{JOB}/state/{uid}")

    def check_no_secret(self) -> None:
        """The database's password is in no record, no file and no log."""
        secrets = [PASSWORD.encode(), quote_plus(PASSWORD).encode()]
        leaks = [p for p in self.folder.rglob("*") if p.is_file() and any(s in p.read_bytes() for s in secrets)]
        assert leaks == []

    def _check_records(self, done: Sequence[CompletionRecord]) -> None:
        """What is recorded of checkpoints below the oldest retained one, or of batches, is gone."""
        oldest = done[0].checkpoint
        for folder in ("triggers", "committed", "aborted"):
            old = [k for k in self.job.records.ids(folder) if k < oldest]
            assert not old, f"{folder} of dropped checkpoints: {old}"
        # The batch that completed the last checkpoint may stay; nothing that it staged is open.
        assert [c for b in self.job.records.batches() for c in b.staged] == []
        assert [p for p in self.folder.rglob(".tmp/*") if "/spark/" not in str(p)] == []

    def _check_manifest(self, record: CompletionRecord, uid: str) -> None:
        """The manifest, the Delta version and the files agree."""
        manifest = self._manifest(record, uid)
        url, version = self.job.state_table(uid, record.checkpoint)
        files = self.files(f"jobs/{JOB}/state/{uid}")
        assert manifest.table_version == version
        assert manifest.files <= files
        in_table = {name for name, entry in manifest.content.items() if entry.in_table}
        assert {uri.rsplit("/", 1)[-1] for uri in DeltaTable(url, version=version).file_uris()} == in_table
        assert sorted(manifest.groups) == list(range(record.topology.key_groups))
        for run in (run for group in manifest.groups.values() for run in group.runs):
            assert run.start + run.count <= manifest.content[run.file].rows

    # -- reading -----------------------------------------------------------------------------------------------

    def state(self, record: CompletionRecord, uid: str, key: str, *values: str) -> dict[int, tuple[int, ...]]:
        """The state of ``uid`` at a checkpoint as any Delta reader sees it."""
        url, version = self.job.state_table(uid, record.checkpoint)
        query = f"select {key}, {', '.join(values)} from t"
        table = pa.table(QueryBuilder().register("t", DeltaTable(url, version=version)).execute(query).read_all())
        rows = table.to_pylist()
        found = {row[key]: tuple(row[v] for v in values) for row in rows}
        assert len(found) == len(rows), f"{uid} at {record.checkpoint} has a key twice"
        return found

    def sink_rows(self, sink: str) -> list[Row]:
        if sink == "delta":
            if not (self.folder / "delta").exists():
                return []
            rows = DeltaTable(str(self.folder / "delta")).to_pyarrow_table().to_pylist()
        else:
            rows = self._select("out", *Row._fields)
        return sorted(Row(**row) for row in rows)

    def sink_should(self, sink: str, want: Expected) -> list[Row]:
        return want.latest if sink == self.merging else want.rows

    def sql_checkpoint(self) -> int:
        """The newest checkpoint in the database's ledger; 0 if there is none."""
        return max((row["checkpoint"] for row in self._select("spark_ckpt_ledger", "checkpoint")), default=0)

    def delta_checkpoint(self) -> int:
        if not (self.folder / "delta").exists():
            return 0
        app = f"{identity(JOB, self.job.records.life())}/delta"
        return DeltaTable(str(self.folder / "delta")).transaction_version(app) or 0

    def staged_rows(self) -> dict[str, int]:
        """Rows in the staging tables and their register, and prepared transactions, where there are any."""
        tables = sa.inspect(self._engine).get_table_names()
        staging = [t for t in tables if "__ckpt_" in t or t == "spark_ckpt_stages"]
        assert len(staging) >= 2
        with self._engine.connect() as connection:
            found = {t: connection.execute(sa.text(f'select count(*) from "{t}"')).scalar_one() for t in staging}
            prepared = connection.execute(sa.text("select count(*) from pg_prepared_xacts")).scalar_one()
        return {name: count for name, count in {**found, "prepared": prepared}.items() if count}

    def files(self, folder: str) -> set[str]:
        """Names below ``folder``, a Delta log aside."""
        root = self.folder / folder
        names = (str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
        return {n for n in names if not n.startswith("_delta_log/")}

    def _select(self, table: str, *columns: str) -> list[dict[str, Any]]:
        if not sa.inspect(self._engine).has_table(table):
            return []
        with self._engine.connect() as connection:
            found = connection.execute(sa.select(*map(sa.column, columns)).select_from(sa.table(table)))
            return [dict(row) for row in found.mappings()]

    def _logged_delta_files(self) -> set[str]:
        log = sorted((self.folder / "delta/_delta_log").glob("*.json"))
        actions = [json.loads(line) for commit in log for line in commit.read_text().splitlines()]
        return {a[kind]["path"] for a in actions for kind in ("add", "remove") if kind in a}

    def _manifest(self, record: CompletionRecord, uid: str) -> StateManifest:
        return read_manifest(self.job.records.store, record.tables[uid].manifest)


def offsets_of(record: CompletionRecord) -> list[int]:
    """How many numbers each source had read at a checkpoint."""
    return [int(offset["inner"]["value"]) for _, offset in sorted(record.sources.items())]
