"""Records survive JSON, and a damaged one is refused with what was expected and found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol.events import Cancel, Decline, Flushed, GroupManifest, OperatorAck, Run, SourceAck, StateFile
from spark_ckpt.protocol.records import (
    AbandonedRecord,
    AbortedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    EndedRecord,
    FailingSink,
    GenerationRecord,
    TableRef,
    Topology,
    TriggerRecord,
    VoidRecord,
    checkpoint_from_json,
)
from spark_ckpt.types import Committable, Epoch

TOPOLOGY = Topology(4, 8, ("a", "b"), {"x": {"state": "n long", "keys": "k long"}}, ("s",))
MANIFEST = GroupManifest((Run("f", 0, 3, 2), Run("g", 1, 1, 3, tombstones=True, due_ms=7)), 2, {"w": 5})
STAGED = (Committable("s", Epoch(3), b"\x00\xff"),)
RECORDS = [
    GenerationRecord(3, 2, "file:/spark", 7, 1000, TOPOLOGY, settings={"interval": "10s"}),
    TriggerRecord(7, "savepoint", 1000, "request", "s3://there", True, "r1", 2),
    BatchRecord(
        2,
        9,
        3,
        STAGED,
        (
            SourceAck("a", 7, {"inner": [1, 2]}),
            OperatorAck("x", 7, 0, {0: MANIFEST}, {"rows": 4}),
            Flushed("x", 7, (StateFile("f", 3, 100),), {"g": b"\x01"}),
            Decline("x", 8, "too much"),
            Cancel(8),
        ),
        {7: 4},
        {8: 2},
    ),
    CompletionRecord(
        7, "final", 3, 2, 9, 8, {"a": {"inner": [1, 2]}}, {"x": TableRef(4, "m")}, STAGED, TOPOLOGY, 1000, 2000,
        {"x": {"rows": 4}}, "s3://there", 2, 3,
    ),
    VoidRecord(7, 3, 1000),
    CommittedRecord(7, 3, 1000, "no space", ("s",)),
    AbandonedRecord(7, "s", 2, 1000),
    AbortedRecord(7, "declined", "too much", 1000, 3),
    EndedRecord(3, 1000, "FencedError", "a newer start has it"),
    FailingSink("s", "delta /lake/t", 7, 3, 1000, 2000, "ConnectionError"),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_a_record_survives_json(record):
    assert type(record).from_json(json.loads(json.dumps(record.to_json()))) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_a_missing_field_is_named(record):
    body = json.loads(json.dumps(record.to_json()))
    # what earlier versions did not write
    later = {"deadline_ms", "request", "settings"} if type(record) is not TriggerRecord else {"deadline_ms"}
    later |= {"drain", "drained", "hook", "rows", "times", "gave_up", "shown", "given_location", "to_set_back"}
    assert type(record).from_json({k: v for k, v in body.items() if k not in later}, "there") is not None
    for name in set(body) - {"void", "life", "abandoned"} - later:
        with pytest.raises(CorruptStorageError, match=rf"there: expected .* in '{name}', found nothing"):
            type(record).from_json({k: v for k, v in body.items() if k != name}, "there")


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("wrong", [True, 1.5, [[]], {"a": []}], ids=str)
def test_a_field_of_another_type_is_refused(record, wrong):
    body = json.loads(json.dumps(record.to_json()))
    later = {"deadline_ms", "request", "settings"} if type(record) is not TriggerRecord else {"deadline_ms"}
    assert type(record).from_json({k: v for k, v in body.items() if k not in later}, "there") is not None
    for name in set(body) - {"void"} - later:
        if isinstance(wrong, type(body[name])):
            continue
        with pytest.raises(CorruptStorageError, match=r"expected .*, found"):
            type(record).from_json({**body, name: wrong})


@pytest.mark.parametrize("body", [None, [], "x", 3, {}])
def test_a_body_that_is_no_record_is_refused(body):
    with pytest.raises(CorruptStorageError, match="expected"):
        CompletionRecord.from_json(body)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "nonsense"),
        ("committables", [["s", 1]]),
        ("committables", [["s", 1, "not base64!"]]),
        ("committables", [["s", "1", "AA=="]]),
        ("tables", {"x": {"version": "1", "manifest": "m"}}),
        ("stats", {"x": {"rows": "many"}}),
        ("sources", {"a": 3}),
    ],
)
def test_a_damaged_part_of_a_completion_is_refused(name, value):
    body = {**RECORDS[3].to_json(), name: value}
    with pytest.raises(CorruptStorageError, match=f"checkpoints/7.*{name}|{name}.*checkpoints/7"):
        CompletionRecord.from_json(body, "checkpoints/7")


@pytest.mark.parametrize("event", [{"kind": "nothing"}, {}, 3, {"kind": "cancel"}, {"kind": "cancel", "why": 1}])
def test_a_batch_with_an_unknown_event_is_refused(event):
    body = {**RECORDS[2].to_json(), "events": [event]}
    with pytest.raises(CorruptStorageError, match="events"):
        BatchRecord.from_json(body)


def test_long_garbage_is_cut_in_the_message():
    with pytest.raises(CorruptStorageError) as e:
        VoidRecord.from_json({**RECORDS[4].to_json(), "checkpoint": "x" * 10_000})
    assert len(str(e.value)) < 300


def test_checkpoints_hold_completions_and_voids():
    for record in (RECORDS[3], RECORDS[4]):
        assert checkpoint_from_json(record.to_json()) == record


def test_batch_names_sort_by_batch_and_never_meet_another_generations():
    a, b = RECORDS[2], replace(RECORDS[2], batch=10)
    assert a.name < b.name
    assert a.name != replace(a, generation=4).name
