"""An operator's state as Arrow, one key of it, and what changed between checkpoints, beside a Delta reader."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs._state_changes import changes
from spark_ckpt.jobs.state import State, StateFiles, key_names
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.stored_form import StoredForm
from tests.storage.state_job import SCHEMA, Job, new_job
from tests.storage.whole_job import JOB, WholeJob

KEPT = Path(__file__).parents[1] / "savepoints"
SAVEPOINTS = sorted(p.parent for p in KEPT.glob("*/*/savepoint.json"))
UIDS = [(path, uid) for path in SAVEPOINTS for uid in spark_ckpt.savepoint(str(path)).record().tables]


def name_of(value: Any) -> str:
    return f"{value.parent.name}/{value.name}" if isinstance(value, Path) else str(value)


def by_delta(path: Path, uid: str) -> list[dict[str, Any]]:
    rows = DeltaTable(str(path / "state" / uid)).to_pyarrow_table().drop(["_key_hash", "_key_group"]).to_pylist()
    return sorted(rows, key=repr)


@pytest.mark.parametrize(("path", "uid"), UIDS, ids=name_of)
def test_the_state_of_a_savepoint_is_what_a_delta_reader_sees_and_each_key_is_found(path: Path, uid: str) -> None:
    state = spark_ckpt.savepoint(str(path)).state(uid)
    rows = state.arrow().to_pylist()
    assert sorted(rows, key=repr) == by_delta(path, uid)
    keys = state._key_columns(state._manifest())
    assert keys == state.arrow().column_names[: len(keys)]
    for key in {tuple(r[k] for k in keys) for r in rows}:
        mine = sorted((r for r in rows if tuple(r[k] for k in keys) == key), key=repr)
        assert sorted(state.get(*key), key=repr) == mine
        assert sorted(state.get(**dict(zip(keys, key, strict=True))), key=repr) == mine
    assert len(state.pandas()) == len(rows)


def test_a_key_that_is_a_time_is_found_in_any_zone_and_where_pandas_on_spark_was_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has Arrow pass over the zones of Python's times."""
    monkeypatch.setenv("PYARROW_IGNORE_TIMEZONE", "1")
    state = spark_ckpt.savepoint(str(KEPT / "0.1.0/appended")).state("aggregate-0")
    (row, *_) = state.arrow().to_pylist()
    times = [k for k in state._key_columns(state._manifest()) if isinstance(row[k], datetime)]
    key = {k: row[k] for k in state._key_columns(state._manifest())}
    assert times
    assert state.get(**{**key, **{k: row[k].astimezone(ZoneInfo("Asia/Kolkata")) for k in times}}) == [row]


@pytest.mark.parametrize("path", SAVEPOINTS, ids=name_of)
def test_a_savepoint_of_an_earlier_version_is_whole_and_tells_what_is_in_it(path: Path) -> None:
    savepoint = spark_ckpt.savepoint(str(path))
    assert savepoint.verify() == []
    told = savepoint.describe()["operators"]
    assert {uid: t["keys"] for uid, t in told.items()} == {uid: len(by_delta(path, uid)) for uid in told}


def lacks(state: State, key: str, file: str) -> bool:
    """Whether a look-up of ``key`` needs ``file``, which is gone."""
    with suppress(CorruptStorageError):
        state.get(key)
        return False
    with pytest.raises(CorruptStorageError, match=file):
        state.get(key)
    return True


def test_a_look_up_reads_no_files_but_those_of_its_key(tmp_path: Path) -> None:
    path = tmp_path / "top"
    shutil.copytree(KEPT / "0.1.0/top", path)
    state = spark_ckpt.savepoint(str(path)).state("top.top")
    found = {key: state.get(key) for key in "abcde"}
    assert all(found.values())
    (one, other) = sorted((path / "state/top.top").glob("*.parquet"))
    one.unlink()
    read = [key for key in found if not lacks(state, key, one.name)]
    assert [state.get(key) for key in read] == [found[key] for key in read]
    assert 0 < len(read) < 5, "some of the keys are in the other file only"
    other.unlink()
    with pytest.raises(CorruptStorageError):
        state.get(read[0])


@pytest.mark.parametrize(
    ("key", "named", "expected"),
    [
        ((), {}, "expected a value for each key column of 'digits', \\['digit'\\]; found \\[\\]"),
        ((1, 2), {}, "found 2 value"),
        ((), {"k": 1}, "found \\['k'\\]"),
        (("secret",), {}, "key column 'digit': expected a value of type int64, found one of str that is none"),
        ((2**70,), {}, "expected a value of type int64, found one of int"),
    ],
)
def test_a_look_up_of_another_key_is_refused_and_shows_no_value(key: Any, named: Any, expected: str) -> None:
    state = spark_ckpt.savepoint(str(KEPT / "0.1.0/updated")).state("digits")
    with pytest.raises(InvalidInputError, match=expected) as refused:
        state.get(*key, **named)
    assert "secret" not in str(refused.value)
    assert state.get("7") == state.get(7) != [], "as the command line has it"


def test_names_of_keys_are_found_in_what_older_records_say_of_them() -> None:
    columns = ["w_start", "a", "k", "n"]
    assert key_names("w_start timestamp[us, tz=UTC], a struct<k: int32, n: int64>", columns) == ["w_start", "a"]
    assert key_names("w_start decimal128(10, 2), a int64, k string", columns) == ["w_start", "a", "k"]
    assert key_names("w_start", columns) == ["w_start"]


# --- what changed --------------------------------------------------------------------------------------------------


def view(job: Job, recorded: Any) -> StateFiles:
    content = {file: entry for file, entry in recorded.content.items() if entry.in_table}
    layout = StateLayout(pa.schema([SCHEMA.field("k")]), pa.schema([SCHEMA.field("v")]))
    return StateFiles(job.table.url, {}, StoredForm(layout), content)


@pytest.mark.parametrize("seed", range(4))
def test_the_difference_of_any_two_checkpoints_is_that_of_their_rows(tmp_path: Path, seed: int) -> None:
    """Over deletion vectors, merges, removed keys, and checkpoints that were restored."""
    job = new_job(str(tmp_path / "state" / "u"), 900 + seed)
    while len(job.recorded) < 8:
        job.step()
    for one in job.recorded:
        assert sorted((r["k"], r["v"]) for f in view(job, one).content for b in view(job, one).rows(f)
                      for r in b.to_pylist()) == one.rows  # fmt: skip
        for other in job.recorded:
            then, now = dict(one.rows), dict(other.rows)
            found = changes(view(job, one), view(job, other), ["k"]).to_pylist()
            assert all(set(r) == {"k", "_change", "_before", "_after"} for r in found)
            told = {r["k"]: (r["_change"], r["_before"] and r["_before"]["v"], r["_after"] and r["_after"]["v"])
                    for r in found}  # fmt: skip
            assert len(told) == len(found)
            wanted: dict[int, tuple[str, str | None, str | None]] = {}
            for k in then.keys() | now.keys():
                if then.get(k) != now.get(k):
                    what = "added" if k not in then else "removed" if k not in now else "changed"
                    wanted[k] = (what, then.get(k), now.get(k))
            assert told == wanted


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("views")
    job = WholeJob(root)
    job.start()
    for _ in range(2):
        job.step(True)
    return root


def test_the_state_of_a_job_is_read_at_any_retained_checkpoint(root: Path) -> None:
    job = WholeJob(root).job
    assert [sum(r["n"] for r in job.state("counts", k).arrow().to_pylist()) for k in (1, 2)] == [7, 14]
    assert job.state("counts").arrow().equals(job.state("counts", 2).arrow())
    assert job.state("counts").schema == pa.schema([("k", pa.int64()), ("n", pa.int64())])
    with pytest.raises(InvalidInputError, match=r"no state of 'sums', only of \['counts'\]"):
        job.state("sums")
    with pytest.raises(InvalidInputError, match="no checkpoint 9"):
        job.state("counts", 9)


def test_the_states_of_a_savepoint_and_of_jobs_are_compared_by_key(root: Path, tmp_path: Path) -> None:
    job = WholeJob(root).job
    job.savepoint(str(tmp_path / "made"), checkpoint=1)
    state = spark_ckpt.savepoint(str(tmp_path / "made")).state("counts")
    assert job.state("counts", 1).diff(state).num_rows == state.diff(job.state("counts", 1)).num_rows == 0
    by_key = [("k", "ascending")]
    assert job.state("counts", 2).diff(state).sort_by(by_key) == job.state("counts").diff(1, 2).sort_by(by_key)
    other = WholeJob(tmp_path)
    other.start()
    other.step(True)
    assert other.job.state("counts").diff(state).num_rows == 0
    other.step(True)
    assert other.job.state("counts").diff(job.state("counts", 2)).num_rows == 0
    with pytest.raises(InvalidInputError, match="expected another state in place of 1"):
        state.diff(1)


def test_the_command_prints_what_changed(root: Path) -> None:
    def command(*arguments: str) -> Any:
        return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "80"})

    rows = json.loads(command("diff", f"{root}/jobs", JOB, "counts", "1", "2", "--json").output)
    assert {r["k"]: (r["_change"], r["_before"], r["_after"]) for r in rows} == {
        k: ("changed", {"n": 2 if k < 2 else 1}, {"n": 3 if k < 4 else 2}) for k in range(5)
    }
    text = command("diff", f"{root}/jobs", JOB, "counts", "1", "2").output
    assert text.splitlines()[-1] == "5 changed"
    assert "nothing changed" in command("diff", f"{root}/jobs", JOB, "counts", "2", "2").output


def test_the_command_looks_one_key_up() -> None:
    def get(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["get", *arguments])

    path = str(KEPT / "0.1.0/updated")
    state = spark_ckpt.savepoint(path).state("digits")
    assert json.loads(get(path, "-", "digits", "7", "--json").output) == state.get(7)
    assert get(path, "-", "digits", "7").output.splitlines()[0].startswith("digit")
    none = get(path, "-", "digits", "77")
    assert (none.exit_code, none.output.strip()) == (1, "digits has no such key at checkpoint 2")
