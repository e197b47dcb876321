"""The table of exit codes in docs/commands.md, held by what the commands do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from spark_ckpt.cli import app
from spark_ckpt.jobs.requests import Answer, answer_request, create_request
from spark_ckpt.protocol.records import CHECKPOINT, EndedRecord
from tests.storage.whole_job import JOB, WholeJob

PAGE = Path(__file__).parents[2] / "docs/commands.md"


def code(*arguments: object) -> int:
    return CliRunner().invoke(app, [str(a) for a in arguments]).exit_code


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> WholeJob:
    made = WholeJob(tmp_path_factory.mktemp("codes"), history="true", retain="3")
    made.start()
    made.step(checkpoint=True)
    return made


def doctor(job: WholeJob) -> tuple[int, int]:
    crashed = code("doctor", job.root / "jobs", JOB)
    job.records.end(EndedRecord(job.run.generation, 1_700_000_000_000))
    return code("doctor", job.root / "jobs", JOB), crashed


def get(job: WholeJob) -> tuple[int, int]:
    return code("get", job.root / "jobs", JOB, "counts", 4), code("get", job.root / "jobs", JOB, "counts", 400)


def requested(job: WholeJob) -> tuple[int, int]:
    store = job.records.store
    asked, refused = create_request(store, CHECKPOINT), create_request(store, CHECKPOINT)
    answer_request(store, refused, Answer(None, "its time is over"))
    return code("requested", job.root / "jobs", JOB, asked), code("requested", job.root / "jobs", JOB, refused)


def verify(job: WholeJob) -> tuple[int, int]:
    (file,) = (job.folder / "state/counts").glob("*.parquet")
    whole = code("verify", job.root / "jobs", JOB)
    os.rename(file, f"{file}.away")
    missing = code("verify", job.root / "jobs", JOB)
    os.rename(f"{file}.away", file)
    return whole, missing


OWN: dict[str, Callable[[WholeJob], tuple[int, int]]] = {
    "doctor": doctor, "get": get, "requested": requested, "verify": verify
}  # fmt: skip


def test_the_table_names_each_command_with_codes_of_its_own_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text().split("<!-- commands")[0], re.M)
    own = re.compile(r"^def (\w+)\((?:(?!^def ).)*?raise typer\.Exit\(1\)$", re.M | re.S)
    modules = (Path(__file__).parents[2] / "spark_ckpt/cli").glob("_*_commands.py")
    assert rows == sorted(OWN) == sorted(name for module in modules for name in own.findall(module.read_text()))


@pytest.mark.parametrize("name", OWN)
def test_a_command_with_codes_of_its_own_ends_with_them(job: WholeJob, name: str) -> None:
    assert OWN[name](job) == (0, 1)


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_every_command_ends_with_2_for_wrong_usage(name: str) -> None:
    assert code(name, "--no-such-option") == 2
    assert code(name) == 2
