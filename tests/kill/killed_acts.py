"""What is done to jobs and savepoints, killed ahead of every change of a file: ``killed_acts.py FOLDER EVERY ACT...``

Each time it begins with the same files. Behind the kill what it came from is whole, and the same act again finishes.
The kills are real (SIGKILL), of processes that are forked from this one, which has imported everything and done
nothing. Prints how often each act was killed. No Spark.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pds
from deltalake import DeltaTable

from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.jobs.savepoint_draft import Draft
from spark_ckpt.protocol.events import GroupManifest, Run
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.run_files import write_run_file
from spark_ckpt.types import KEY_GROUP
from tests.kill.dying import die_ahead_of
from tests.sinks.sql_harness import run
from tests.sinks.whole_job_into import JobInto, rows_of
from tests.storage.changed_job import Changed, Migrated, Rescaled
from tests.storage.whole_job import KEYS, OUTPUT, ROWS, STATE, UID, WholeJob


def prepare(root: Path) -> None:
    """A job behind three checkpoints, an open batch and a savepoint, with what earlier starts left; it has stopped."""
    job = WholeJob(root, retain="5")
    job.start()
    for _ in range(2):
        job.step(True)
    job.step(True, savepoint=f"{root}/taken")
    job.step(False)
    job.start()
    job._trigger()


def taken(root: Path) -> Savepoint:
    return Savepoint(f"{root}/taken", WholeJob(root).config)


def counts(root: Path, savepoint: Savepoint) -> dict[int, int]:
    rows = savepoint.state(UID).arrow().to_pylist()
    return {row["k"]: row["n"] for row in rows}


def wanted(rows: int) -> dict[int, int]:
    return {k: len(range(k, rows, KEYS)) for k in range(KEYS)}


def whole(root: Path) -> None:
    """The job and its savepoint are what they were, or further."""
    assert WholeJob(root).job.verify() == []
    assert taken(root).verify() == []
    assert counts(root, taken(root)) == wanted(3 * ROWS)


def goes_on(root: Path, rows: int | None = None, location: str = "spark") -> None:
    """The job, started again, behind a batch with a checkpoint. ``rows``: how many it read before."""
    job = WholeJob(root, retain="5")
    job.start(location=location)
    assert rows is None or job.position == rows
    job.step(True)
    job.check(doubles=False)
    assert job.job.verify() == []


# -- acts ------------------------------------------------------------------------------------------------------------


def take(root: Path) -> None:
    """A savepoint of the job that runs; a start finishes one that was begun."""
    job = WholeJob(root, retain="5")
    job.start()
    if not is_made(root):
        job.step(True, savepoint=f"{root}/made")


def made(root: Path, rows: int) -> None:
    savepoint = Savepoint(f"{root}/made", WholeJob(root).config)
    assert savepoint.verify() == []
    assert counts(root, savepoint) == wanted(rows)


def is_made(root: Path) -> bool:
    return (root / "made/savepoint.json").exists()


def copy_checkpoint(root: Path) -> None:
    if not is_made(root):
        WholeJob(root).job.savepoint(f"{root}/made", checkpoint=2)


def copy(root: Path) -> None:
    if not is_made(root):
        taken(root).copy(f"{root}/made")


def dispose(root: Path) -> None:
    if (root / "taken").exists():
        taken(root).dispose(force=True)


def disposed(root: Path) -> None:
    assert not (root / "taken").exists()
    goes_on(root)


def roll_back(root: Path) -> None:
    WholeJob(root, retain="5").job.rollback(1)


def rolled_back(root: Path) -> None:
    job = WholeJob(root, retain="5")
    job.start(location="elsewhere")
    assert job.position == ROWS
    job.step(True)
    job.check(doubles=False)


def into_tables(root: Path) -> JobInto:
    database = {"url": f"sqlite:///{root}/out.db", "table": "t", "checkpointColumn": "came_with"}
    paths = [(kind, {"uid": kind, "path": f"{root}/{kind}"}) for kind in ("delta", "files")]
    return JobInto(root, [*paths, ("sql", {"uid": "sql", **database})])


def prepare_tables(root: Path) -> None:
    job = into_tables(root)
    job.start()
    for checkpoint in (True, True, True, False):
        job.step(checkpoint)


def roll_tables_back(root: Path) -> None:
    into_tables(root).job.rollback(1)


def tables_rolled_back(root: Path) -> None:
    """In the tables, and behind the rows that come once again."""
    job = into_tables(root)
    job.start(location="elsewhere")
    assert job.position == ROWS
    for wanted in (ROWS, 2 * ROWS):
        delta = rows_of(pa.table(DeltaTable(f"{root}/delta").to_pyarrow_table()))
        files = rows_of(pds.dataset(f"{root}/files", format="parquet", schema=OUTPUT).to_table())
        database = run(f"sqlite:///{root}/out.db", f"SELECT {', '.join(OUTPUT.names)} FROM t ORDER BY 1")
        assert delta == files == database == job.all_rows[:wanted]
        job.step(True)


def collect(root: Path) -> None:
    WholeJob(root, retain="5").job.gc(min_age_s=0, force=True)


def restore(root: Path) -> None:
    WholeJob(root, retain="5").start(restore=f"{root}/taken", location="elsewhere")


def change(root: Path, query: type[Changed]) -> None:
    query(root, retain="5").start()


def changed(root: Path) -> None:
    job = Changed(root, retain="5")
    job.start()
    assert job.counts == wanted(3 * ROWS)
    assert job.run.topology.operators[UID]["rewritten"] == ["same"]
    job.step(True)
    job.check(doubles=False)
    assert job.job.verify() == []


def rescaled(root: Path) -> None:
    """Behind a checkpoint of the state under its new key groups, and a start from that one."""
    for rows in (3 * ROWS, 4 * ROWS):
        job = Rescaled(root, retain="5")
        job.start(location=f"behind-{rows}")
        assert job.counts == wanted(rows)
        assert job.run.topology.key_groups == 3
        job.step(True)
        job.check(doubles=False)
        assert job.job.verify() == []


def migrated(root: Path) -> None:
    """The function was called for the rows of the checkpoint once, and never again."""
    for rows in (3 * ROWS, 4 * ROWS):
        job = Migrated(root, retain="5")
        job.start(location=f"behind-{rows}")
        assert job.counts == {k: n + Migrated.ADDED for k, n in wanted(rows).items()}
        job.step(True)
        assert job.job.verify() == []


def write(root: Path) -> None:
    if is_made(root):
        return
    target, source = Savepoint(f"{root}/made", WholeJob(root).config), taken(root)
    draft = Draft(target, "job", source, {"steps": "those of this test"})
    draft.begin()
    rows = [{"k": k, "n": n, KEY_GROUP: 0, "_key_hash": k} for k, n in wanted(50).items()]
    table = pa.Table.from_pylist(rows, schema=STATE)
    file = write_run_file(draft.folder(UID).url, "written-1.parquet", table)
    group = GroupManifest((Run(file.file, 0, len(rows), 1),), len(rows))
    draft.put(UID, STATE, {file.file: FileEntry(file.rows, file.size_bytes)}, {0: group})
    draft.keep_sources(["rows"])
    draft.finish(source.record().topology, source.record().sources)


@dataclass(frozen=True)
class Act:
    do: Callable[[Path], None]
    done: Callable[[Path], None]
    intact: Callable[[Path], None] = whole
    prepare: Callable[[Path], None] = prepare


ACTS = {
    "savepoint": Act(take, lambda root: made(root, 5 * ROWS)),
    "savepoint of a checkpoint": Act(copy_checkpoint, lambda root: made(root, 2 * ROWS)),
    "copy": Act(copy, lambda root: made(root, 3 * ROWS)),
    "write": Act(write, lambda root: made(root, 50)),
    "dispose": Act(dispose, disposed, lambda root: None),
    "rollback": Act(roll_back, rolled_back),
    "rollback of tables": Act(roll_tables_back, tables_rolled_back, lambda root: None, prepare_tables),
    "gc": Act(collect, partial(goes_on, rows=4 * ROWS)),
    "restore": Act(restore, partial(goes_on, rows=3 * ROWS, location="elsewhere")),
    "changed query": Act(partial(change, query=Changed), changed),
    "rescale": Act(partial(change, query=Rescaled), rescaled),
    "migrate": Act(partial(change, query=Migrated), migrated),
}


# -- kills -----------------------------------------------------------------------------------------------------------


def forked(do: Callable[[], None]) -> int:
    """The exit code of a process that does it; minus the number of the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            do()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - whatever it is, the process must end here
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_everywhere(root: Path, act: Act, every: int) -> int:
    """How often it was killed."""
    before, nth = root.with_name(f"{root.name}-before"), 1
    assert forked(lambda: act.prepare(root)) == 0
    shutil.copytree(root, before)

    def dies() -> None:
        die_ahead_of(nth, str(root))
        act.do(root)

    def again() -> None:
        act.intact(root)
        act.do(root)
        act.intact(root)
        act.done(root)

    while True:
        code = forked(dies)
        assert code in (0, -signal.SIGKILL), f"it failed, to be killed ahead of change {nth}"
        assert forked(again) == 0, f"killed ahead of change {nth}"
        if code == 0:
            return (nth - 1) // every
        shutil.rmtree(root)
        shutil.copytree(before, root)
        nth += every


def main(folder: str, every: str, *names: str) -> None:
    for name in names or ACTS:
        root = Path(folder) / name.replace(" ", "-")
        kills = killed_everywhere(root, ACTS[name], int(every))
        print(f"{name}: killed {kills} times", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
