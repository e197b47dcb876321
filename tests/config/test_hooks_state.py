"""What hooks keep with a checkpoint, and how they fail it. No Spark."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.jobs.hooks import HookError, ask_hook, hook_name, load_hooks, restore_hook
from spark_ckpt.protocol.records import (
    BatchRecord,
    CompletionRecord,
    GenerationRecord,
    HookState,
    Topology,
    TriggerRecord,
)
from spark_ckpt.protocol.recovery import (
    NONE,
    GoOn,
    Refuse,
    RestoreFrom,
    SparkLocation,
    StartFacts,
    as_savepoint,
    decide_start,
)

TOPOLOGY = Topology(4, 4, ("a",), {}, ("memory",))
RECORD = CompletionRecord(7, "checkpoint", 1, 1, 3, 3, {"a": {}}, {}, (), TOPOLOGY, 1, 2)
KEPT = replace(RECORD, hook=HookState("keeping", b"\x00\xffstate"))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "spark" / "importable"))
    from keeping_hooks import folder

    name = uuid.uuid4().hex
    yield name
    shutil.rmtree(folder(name))
    load_hooks.cache_clear()
    sys.modules.pop("keeping_hooks")


def config(**values: Any) -> JobConfig:
    return JobConfig(dir="there", hooks="keeping_hooks:Keeping", **values)


def ask(job: str, mode: str, checkpoint: int = 5, **values: Any) -> HookState | None:
    from keeping_hooks import folder

    (folder(job) / "mode").write_text(mode)
    return ask_hook(config(**values), job, checkpoint, {})


def test_what_hooks_return_is_kept_under_their_name(job: str) -> None:
    assert ask(job, "") == HookState("keeping", f"{job} 5".encode())
    assert ask(job, "nothing") is None
    assert ask_hook(JobConfig(dir="there"), job, 5, {}) is None
    assert hook_name(JobConfig(dir="there", hooks="keeping_hooks:Nameless")) == "keeping_hooks:Nameless"


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("raise", "raised KeyError"),
        ("text", "expected bytes or None, found str"),
        ("large", "expected at most 1048576 bytes, found 2097152"),
    ],
)
def test_a_hook_that_fails_says_why_without_what_may_be_secret(job: str, mode: str, why: str) -> None:
    with pytest.raises(HookError, match=why) as failed:
        ask(job, mode)
    assert "password" not in str(failed.value)
    assert ask(job, "") is not None, "the next one is asked again"


def test_a_slow_hook_fails_its_checkpoint_and_those_until_it_returns(job: str) -> None:
    with pytest.raises(HookError, match=r"longer than 1 ms \(spark.ckpt.hooks.timeout\)"):
        ask(job, "slow", hooks_timeout_ms=1)
    with pytest.raises(HookError, match="has not returned from an earlier"):
        ask(job, "")
    for thread in threading.enumerate():
        if thread.name.startswith("spark-ckpt-hook"):
            thread.join()
    assert ask(job, "") is not None


def test_the_state_survives_the_records_and_a_savepoint_as_it_was() -> None:
    trigger = TriggerRecord(7, "checkpoint", 1, "interval", None, False, None, 1, hook=KEPT.hook)
    assert TriggerRecord.from_json(json.loads(json.dumps(trigger.to_json()))) == trigger
    assert CompletionRecord.from_json(json.loads(json.dumps(KEPT.to_json()))) == KEPT
    assert as_savepoint(KEPT).hook == KEPT.hook
    old = {k: v for k, v in RECORD.to_json().items() if k not in ("hook", "drained")}
    assert CompletionRecord.from_json(old) == RECORD, "of a release that had none"


def test_hooks_get_back_what_they_kept_under_their_name_or_nothing(job: str) -> None:
    from keeping_hooks import folder

    restore_hook(config(), job, replace(RECORD, hook=HookState("keeping", b"kept")))
    restore_hook(config(), job, replace(RECORD, hook=HookState("other", b"kept")))
    restore_hook(config(), job, RECORD)
    restore_hook(JobConfig(dir="there"), job, KEPT)
    assert (folder(job) / "restored").read_text().splitlines() == ["7 kept", "7 None", "7 None"]
    (folder(job) / "broken").touch()
    with pytest.raises(
        CheckpointFailedError, match=r"restore_state of the hooks 'keeping' .* 7 with OSError"
    ) as failed:
        restore_hook(config(), job, KEPT)
    assert "password" not in str(failed.value)


@pytest.mark.parametrize("planned", [None, 3])
def test_state_of_hooks_that_are_gone_is_refused_unless_it_is_allowed(planned: int | None) -> None:
    before = GenerationRecord(1, 1, "spark", None, 1, TOPOLOGY)
    facts = StartFacts(
        "auto", SparkLocation("spark", planned, planned, None if planned is None else 1), TOPOLOGY, 2, (before,),
        (KEPT,), frozenset({7}), (BatchRecord(1, 3, 1),), hook=None,
    )  # fmt: skip
    refused = decide_start(facts)
    assert isinstance(refused, Refuse)
    assert "checkpoint 7 holds state of the hooks 'keeping'" in refused.reason
    assert isinstance(decide_start(replace(facts, hook="other")), Refuse)
    for fine in (replace(facts, hook="keeping"), replace(facts, allow_non_restored=True)):
        found = decide_start(fine)
        assert isinstance(found, GoOn if planned else RestoreFrom)
        assert (found.newest if isinstance(found, GoOn) else found.checkpoint) == KEPT
    if planned is None:
        assert not isinstance(decide_start(replace(facts, restore=NONE)), Refuse)
