"""User hooks hear of every trigger, snapshot, completion and abort, wherever it happens."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from recording_hooks import told  # as the workers import it, by the path that conftest adds

from tests.spark.conftest import Input, Job, wait_until
from tests.spark.test_alignment import BOTH_ONCE, Crossing


def test_hooks_are_told_of_triggers_snapshots_completions_and_aborts(
    ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    crossing = Crossing(ckpt, new_input, job)
    options = {"job": f"hooks-{uuid.uuid4().hex}", "hooks": "recording_hooks:Recording", "tolerableFailures": "1"}
    query = crossing.start(alignment__maxBufferedBytes="1", **options)
    crossing.cross(query)
    wait_until(lambda: query.checkpoints(), query)
    query.stop()
    crossing.finish(**options)
    assert job.rows() == BOTH_ONCE, "the hook that raises at every snapshot changes nothing"

    file = told(options["job"])
    heard = [json.loads(line) for line in file.read_text().splitlines()]
    file.unlink()
    assert [(what, k) for what, k, _ in heard if what != "snapshot"] == [
        ("trigger", 1),
        ("abort", 1),
        ("trigger", 2),
        ("complete", 2),
    ]
    by_what = {what: info for what, _, info in heard}
    assert by_what["abort"]["cause"] == "declined"
    assert "held back" in by_what["abort"]["reason"]
    assert by_what["trigger"]["kind"] == by_what["complete"]["kind"] == "final"
    assert by_what["complete"]["duration_ms"] >= 0
    snapshots = [(k, info["uid"], info["partition"]) for what, k, info in heard if what == "snapshot"]
    assert sorted(set(snapshots)) == [(2, "totals", 0), (2, "totals", 1)]
    assert sum(info["keys"] for what, _, info in heard if what == "snapshot") == 2
