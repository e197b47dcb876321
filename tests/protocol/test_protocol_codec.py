"""One codec: every field is checked, an error names record, field, expected and found, and old records are read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pytest

from spark_ckpt.errors import CorruptStorageError, NewerFormatError
from spark_ckpt.protocol import codec, events
from spark_ckpt.protocol.aligner import AlignerState, PendingBarrier
from spark_ckpt.protocol.codec import Bit, Choice, Count, later, optional
from spark_ckpt.protocol.records import GenerationRecord, TriggerRecord, checkpoint_from_json
from spark_ckpt.protocol.source_offset import PendingTrigger, SourceOffset


@dataclass(frozen=True)
class Place:
    row: Count
    last: Bit = False


codec.as_row(Place, shortest=1)


@dataclass(frozen=True)
class Thing:
    name: str
    size: Count
    kind: Annotated[str, Choice(("a", "b"))]
    data: bytes
    at: tuple[Place, ...]
    by: Mapping[int, Mapping[str, int]]
    why: str | None
    fresh: bool = later(True)
    note: int | None = optional()

    GONE = frozenset({"colour"})


THING = Thing("n", 3, "a", b"\x00\xff", (Place(1), Place(2, True)), {7: {"x": -1}}, None)
BODY = {
    "name": "n", "size": 3, "kind": "a", "data": "AP8=", "at": [[1], [2, 1]], "by": {"7": {"x": -1}}, "why": None,
    "fresh": True,
}  # fmt: skip


def test_a_value_is_written_as_the_table_says_and_read_back():
    assert codec.write(THING) == BODY
    assert codec.read(Thing, json.loads(json.dumps(BODY)), "there") == THING


def test_what_older_releases_did_not_write_or_wrote_besides_is_no_damage():
    body = {name: v for name, v in BODY.items() if name != "fresh"}
    assert codec.read(Thing, {**body, "colour": "red"}, "there") == THING


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": -1}, "expected an integer from 0 on in 'size', found -1"),
        ({"size": True}, "expected an integer from 0 on in 'size', found True"),
        ({"name": 3}, "expected text in 'name', found 3"),
        ({"kind": "c"}, "expected a or b in 'kind', found 'c'"),
        ({"data": "?"}, "expected base64 text in 'data', found '?'"),
        ({"at": [[1], [-2]]}, r"expected an integer from 0 on in 'at[1].row', found -2"),
        ({"at": [[1, 2]]}, r"expected 0 or 1 in 'at[0].last', found 2"),
        ({"at": [[]]}, r"expected a list of row, last in 'at[0]', found []"),
        ({"by": {"7": {"x": None}}}, "expected an integer in 'by.7.x', found None"),
        ({"by": {"seven": {}}}, "expected an integer as a name in 'by.seven', found 'seven'"),
        ({"why": 1}, "expected text or null in 'why', found 1"),
    ],
)
def test_an_error_names_record_field_expected_and_found(change, said):
    with pytest.raises(CorruptStorageError, match=re.escape(f"things/7: {said}; ")):
        codec.read(Thing, {**BODY, **change}, "things/7")


def test_a_field_that_is_not_known_is_of_a_newer_version_and_no_damage():
    with pytest.raises(NewerFormatError, match=r"things/7 was written by a newer version of .*: it has 'more', which"):
        codec.read(Thing, {**BODY, "more": 1}, "things/7")


def test_a_missing_field_is_named():
    for name in set(BODY) - {"fresh"}:
        with pytest.raises(CorruptStorageError, match=rf"there: expected .* in '{name}', found nothing"):
            codec.read(Thing, {n: v for n, v in BODY.items() if n != name}, "there")


def test_a_run_is_checked_as_if_nobody_were_in_a_hurry():
    good = ["f", 0, 3, 2, 1, None]
    assert codec.read(events.Run, good, "there") == events.Run("f", 0, 3, 2, True)
    assert codec.write(events.Run("f", 0, 3, 2, True)) == good
    for i, wrong in enumerate([3, -1, True, "2", 2, "soon"]):
        name = ("file", "start", "count", "epoch", "tombstones", "due_ms")[i]
        with pytest.raises(CorruptStorageError, match=f"there: expected .* in '{name}', found {wrong!r}"):
            codec.read(events.Run, [*good[:i], wrong, *good[i + 1 :]], "there")
    with pytest.raises(CorruptStorageError, match="a list of file, start"):
        codec.read(events.Run, good[:5], "there")


@pytest.mark.parametrize("body", [{"kind": "nothing"}, {}, {"kind": []}, {"kind": "cancel", "checkpoint": -1}, 3])
def test_an_event_that_is_none_is_refused(body):
    with pytest.raises(CorruptStorageError, match="control event: expected"):
        events.from_json(body)


def test_what_earlier_releases_wrote_is_read():
    """Texts as they stand on disks, without what was added since."""
    topology = '"topology":{"key_groups":4,"weight_total":8,"sources":["a"],"operators":{},"sinks":["s"]}'
    generation = '{"generation":3,"origin":2,"spark_location":"l","restored_from":null,'
    generation += f'"restored_path":null,"started_ms":1,{topology}}}'
    assert GenerationRecord.from_json(json.loads(generation)).life == ""
    trigger = '{"checkpoint":7,"kind":"final","time_ms":1,"by":"x","target":null,'
    trigger += '"terminal":false,"request":null,"generation":2}'
    assert TriggerRecord.from_json(json.loads(trigger)).deadline_ms is None
    void = '{"void":true,"checkpoint":7,"generation":2,"time_ms":1}'
    assert checkpoint_from_json(json.loads(void)).generation == 2
    assert events.from_json({"kind": "barrier", "checkpoint": 7, "weight": 4, "triggered_ms": 1}).drain is False
    assert events.from_json({"kind": "decline", "uid": "u", "checkpoint": 7, "reason": "r"}).failed is False
    offset = '{"origin":1,"inner":[3],"epoch":8,"barrier":7,"triggered_ms":9,'
    offset += '"pending":[[7,9],[6,5,"r",null]],"cancel":[],"ended":false}'
    found = SourceOffset.from_json(json.loads(offset))
    assert found.pending == (PendingTrigger(7, 9), PendingTrigger(6, 5, request="r"))
    state = {"epoch": 5, "pending": [[5, 4, 50, 100, 7], [6, 4, 60, 100, 0, 1]], "finished": [[5, 2]]}
    assert AlignerState.from_json(state).pending[1] == PendingBarrier(6, 4, 60, 100, 0, True)
    assert AlignerState.from_json(state).to_json() == state
