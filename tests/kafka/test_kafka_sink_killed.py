"""A whole job into Kafka, killed with open transactions and in the middle of a commit, and read as a stranger would."""

from __future__ import annotations

import json
import signal
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.kafka.sink_job import JOB
from tests.kafka.sink_target import committed
from tests.kafka_server import shared_kafka
from tests.kill.processes import Session, environment

FILES, ROWS, KEYS = 8, 60, 7


def written(folder: Path) -> list[tuple[int, int, int, int]]:
    """The input, and what must come of it: each row with the running count and sum of its key."""
    (folder / "in").mkdir()
    seen: dict[int, list[int]] = defaultdict(list)
    expected = []
    for file in range(FILES):
        rows = [(v * v % KEYS, v) for v in range(file * ROWS, (file + 1) * ROWS)]
        text = "".join(json.dumps({"k": k, "value": v}) + "\n" for k, v in rows)
        (folder / "in" / f"{file}.json").write_text(text)
        for k, v in rows:
            seen[k].append(v)
            expected.append((k, v, len(seen[k]), sum(seen[k])))
    return sorted(expected)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("staging", ["durable", "kafka"])
def test_a_killed_job_has_each_row_in_kafka_once(tmp_path: Path, staging: str) -> None:
    server, expected = shared_kafka(), written(tmp_path)
    topic = server.new_topic(3)
    options = {f"kafka.{k}": v for k, v in server.sasl.items()} | {"topic": topic, "staging": staging}
    command = [sys.executable, str(Path(__file__).with_name("sink_job.py")), str(tmp_path), json.dumps(options)]

    def run(kill: str = "") -> int:
        at = f"{kill}={tmp_path}/{kill.replace(' ', '-')}" if kill else ""
        with Session(command, tmp_path / "log", environment(SPARK_CKPT_KILL_AT=at)) as session:
            return session.wait()

    def in_kafka() -> list[tuple[int, int, int, int]]:
        found = [json.loads(m.value()) for m in committed(server, topic)]
        return sorted((r["k"], r["value"], r["n"], r["s"]) for r in found)

    for kill in ("after PrepareCommit#3", "after CreateCompletion#2", "after CommitSink"):
        assert run(kill) == -signal.SIGKILL, (tmp_path / "log").read_text()[-4000:]
        found = in_kafka()
        assert len(set(found)) == len(found)
        assert set(found) < set(expected)
    assert run() == 0, (tmp_path / "log").read_text()[-4000:]
    assert in_kafka() == expected
    assert len({m.partition() for m in committed(server, topic)}) == 3
    assert [p for p in (tmp_path / "jobs" / JOB).rglob("*.arrow") if "staged" in p.parts] == []
