"""A task that misses a state file asks whether its driver was fenced before it says that the file is missing."""

from __future__ import annotations

from pathlib import Path

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CorruptStorageError, FencedError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol.records import GenerationRecord, Topology
from spark_ckpt.runtime._fencing import unless_fenced

TOPOLOGY = Topology(1, 1, ("s",), {}, ("out",))


def test_a_missing_file_is_told_as_what_it_is(tmp_path: Path) -> None:
    config = JobConfig.from_options({"dir": str(tmp_path)})
    run = RunSpec("job", config, 1, 1, 1, None, None, TOPOLOGY, 1)
    records, missing = JobRecords(run.url, config), CorruptStorageError("e0001.parquet is missing")
    records.create_generation(GenerationRecord(1, 1, "spark", None, 0, TOPOLOGY))
    assert unless_fenced(run, missing) is missing
    records.create_generation(GenerationRecord(2, 2, "elsewhere", None, 0, TOPOLOGY))
    told = unless_fenced(run, missing)
    assert isinstance(told, FencedError)
    assert "expected generation 1 to be the newest, found 2; another query runs this job now" in str(told)
    assert "e0001.parquet is missing" in str(told)
