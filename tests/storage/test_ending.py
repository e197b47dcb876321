"""What the job's folder is told of how a query ended."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.jobs.ending import note_end, told_of
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.records import GenerationRecord, Topology

FRAME = "[STREAM_FAILED] Query [id = 8, runId = f] terminated with exception: "
PYTHON = (
    f"{FRAME}[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n"
    '  File "job.py", line 17, in call\n    raise {0}\n{0}\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ==='
)

RAISED = "raised at job.py, line 17, in call"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (PYTHON.format("ZeroDivisionError: of 4711"), ("ZeroDivisionError", RAISED)),
        (PYTHON.format("some.module.PaymentError: 4711"), ("PaymentError", RAISED)),
        (
            PYTHON.format("spark_ckpt.errors.RefusedError: sink sql: constraint c refuses rows"),
            ("RefusedError", "sink sql: constraint c refuses rows"),
        ),
        (f"{FRAME}[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", ("DIVIDE_BY_ZERO", "")),
        ("[STREAM_FAILED] [FOREACH_ERROR] the function failed: ValueError: 4711", ("FOREACH_ERROR", "")),
        (f"{FRAME}Python worker failed to connect back.", ("StreamingQueryException", "")),
    ],
)
def test_the_innermost_error_is_named_and_texts_of_others_are_not_kept(message, told):
    found = told_of(StreamingQueryException(message, "STREAM_FAILED", {"message": message}))
    assert found == told
    assert "4711" not in "".join(found)


def test_an_error_of_ours_keeps_its_text():
    assert told_of(ConfigError("no such topic")) == ("ConfigError", "no such topic")


def test_the_first_word_of_an_end_stays_and_a_removed_folder_stays_removed(tmp_path):
    records = JobRecords(str(tmp_path / "job"), JobConfig(dir=str(tmp_path)))
    note_end(records, 1, None)
    assert not (tmp_path / "job").exists()
    records.create_generation(GenerationRecord(1, 1, "spark", None, 1000, Topology(1, 1, ("a",), {}, ("s",))))
    note_end(records, 1, ConfigError("x"))
    note_end(records, 1, None)
    assert records.ended(1).error == "ConfigError"
