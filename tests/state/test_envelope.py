"""Envelopes: what a task packs is what the subtasks unpack."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import InvalidInputError, ProtocolBugError
from spark_ckpt.protocol.events import (
    Barrier,
    Cancel,
    Decline,
    Event,
    Finished,
    GroupManifest,
    OperatorAck,
    Restore,
    Run,
    SourceAck,
    Watermark,
)
from spark_ckpt.state.envelope import PASSING_SLOT, Controls, Envelope, pack, route, unpack
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from spark_ckpt.state.subtasks import Subtasks
from spark_ckpt.types import KEY_HASH

SCHEMA = pa.schema(
    [
        (KEY_HASH, pa.int64()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("pair", pa.struct([("a", pa.int32()), ("b", pa.binary())])),
        ("arrival", pa.int64()),
    ]
)
BROADCAST: list[Event] = [Barrier(3, 64, 1), Cancel(2), Finished(5), Watermark("w", 7, 3)]


def table(hashes: list[int]) -> pa.Table:
    rows = [
        {
            KEY_HASH: h,
            "name": str(h) if i % 3 else None,
            "tags": ["x"] * (i % 3),
            "pair": {"a": i, "b": b"y" * i},
            "arrival": i,
        }
        for i, h in enumerate(hashes)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def unpacked(packed: list[tuple[int, bytes, bytes | None]]) -> dict[int, list[Envelope]]:
    envelopes = defaultdict(list)
    for group, head, body in packed:
        envelopes[group].append(unpack(head, body, SCHEMA))
    return envelopes


@given(
    st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)), max_size=4),
    st.builds(Subtasks, st.integers(1, 9), st.integers(1, 5)),
    st.sampled_from([1, 700, 1 << 20]),
)
def test_every_row_arrives_once_in_its_subtask_and_epoch_in_arrival_order(
    epochs: list[tuple[int, list[int]]], subtasks: Subtasks, max_bytes: int
) -> None:
    rows = [(epoch, table(hashes)) for epoch, hashes in epochs]
    arrived = unpacked(list(pack(rows, subtasks, Controls(), SCHEMA, max_bytes)))
    for subtask in range(subtasks.count):
        found = [(e, r) for env in arrived.pop(subtask, []) for e, t in env.segments for r in t.to_pylist()]
        expected = [
            (e, r) for e, t in rows for r in t.to_pylist() if subtasks.subtask_of(np.array([r[KEY_HASH]]))[0] == subtask
        ]
        assert found == expected
    assert not arrived


def test_broadcast_events_reach_every_subtask_and_routed_ones_one() -> None:
    ack = SourceAck("s", 3, {"inner": 1})
    controls = Controls(tuple(BROADCAST), {2: (ack,)})
    arrived = unpacked(list(pack([(1, table([5]))], Subtasks(4, 4), controls, SCHEMA)))
    assert sorted(arrived) == [0, 1, 2, 3]
    for group, envelopes in arrived.items():
        (envelope,) = envelopes
        assert envelope.events == BROADCAST + ([ack] if group == 2 else [])
        assert [len(t) for _, t in envelope.segments] == ([1] if group == 2 else [])


def test_nothing_in_is_nothing_out() -> None:
    assert list(pack([(1, table([]))], Subtasks(4, 4), Controls(), SCHEMA)) == []


def test_a_large_subtask_is_split_and_its_events_arrive_once() -> None:
    rows = table([7] * 1000)
    packed = list(pack([(1, rows), (2, rows)], Subtasks(2, 2), Controls(tuple(BROADCAST)), SCHEMA, max_bytes=50_000))
    full = [(g, h, b) for g, h, b in packed if b is not None]
    assert len(full) > 10
    assert max(len(b) for _, _, b in full if b is not None) <= 60_000  # Arrow's own framing comes on top
    arrived = unpacked(packed)
    assert [e for env in arrived[1] for e in env.events] == BROADCAST
    assert sum(len(t) for env in arrived[1] for _, t in env.segments) == 2000


def test_an_envelope_holds_only_its_own_rows_bytes() -> None:
    rng = random.Random(1)
    rows = table([rng.randrange(-(2**63), 2**63) for _ in range(2000)])
    packed = list(pack([(1, rows)], Subtasks(128, 128), Controls(), SCHEMA))
    assert sum(len(b) for _, _, b in packed if b) < 1.5 * rows.nbytes
    sliced = list(pack([(1, rows.slice(10, 1))], Subtasks(128, 128), Controls(), SCHEMA))
    assert [len(b) < 2000 for _, _, b in sliced if b] == [True]


def test_a_hash_that_costs_less_than_its_way_is_left_behind_and_computed_again() -> None:
    """Of keys as they are hashed anywhere: zeros of both signs are one, and so are all NaNs."""
    number = [None, 1, -5] * 400
    keys = [pa.array(number, pa.int64()), pa.array([0.0, -0.0, float("nan"), None] * 300)]
    hashes = pa.array(xxhash64([normalised(column) for column in keys]))
    rows = pa.table([keys[0], hashes, keys[1]], names=["k", KEY_HASH, "d"])
    packed = list(pack([(1, rows)], Subtasks(4, 2), Controls(), rows.schema, hashed_again=["k", "d"]))
    found = [unpack(head, body, rows.schema).segments[0][1] for _, head, body in packed]
    arrived = pa.concat_tables(found).combine_chunks()
    assert sorted(map(repr, arrived.to_pylist())) == sorted(map(repr, rows.to_pylist()))
    with_hash = list(pack([(1, rows)], Subtasks(4, 2), Controls(), rows.schema))
    assert sum(len(b or b"") for *_, b in with_hash) - sum(len(b or b"") for *_, b in packed) >= 8 * len(number)


def test_dictionary_columns_travel_as_their_values() -> None:
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    rows = pa.table({KEY_HASH: pa.array([1, 2, 3]), "name": names})
    ((_, head, body),) = pack([(1, rows)], Subtasks(1, 1), Controls(), rows.schema)
    assert unpack(head, body, rows.schema).segments[0][1].column("name").to_pylist() == ["a", "b", "a"]


def test_reading_with_another_schema_is_refused() -> None:
    ((_, head, body),) = pack([(1, table([1]))], Subtasks(1, 1), Controls(), SCHEMA)
    with pytest.raises(ProtocolBugError, match="other columns"):
        unpack(head, body, SCHEMA.set(1, pa.field("name", pa.int64())))


def test_rows_that_lack_a_column_are_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="'tags'"):
        list(pack([(1, table([1]).drop(["tags"]))], Subtasks(1, 1), Controls(), SCHEMA))


def test_restore_of_this_operator_gives_every_subtask_the_manifests_of_its_key_groups() -> None:
    manifests = {g: GroupManifest((Run("f", g, 5, 2),), 5, {"w": 3}) for g in (0, 1, 3)}
    controls = route([Restore("totals", 9, manifests, adopt=True)], ["totals"], Subtasks(5, 2))
    assert controls.broadcast == ()
    parts = ({0: manifests[0], 1: manifests[1]}, {3: manifests[3]})
    assert dict(controls.routed) == {s: (Restore("totals", 9, part, adopt=True),) for s, part in enumerate(parts)}


def test_foreign_events_pass_through_one_subtask() -> None:
    foreign = [
        Restore("other", 9, {}),
        OperatorAck("other", 3, 0, {}),
        Decline("other", 3, "full"),
        SourceAck("s", 3, {}),
    ]
    controls = route([*BROADCAST, *foreign], ["totals"], Subtasks(3, 3))
    assert controls == Controls(tuple(BROADCAST), {}, tuple(foreign))
    for rows, carrier in ((table([]), PASSING_SLOT), (table([2**63 - 1]), 2)):
        arrived = unpacked(list(pack([(1, rows)], Subtasks(3, 3), Controls((), {}, tuple(foreign)), SCHEMA)))
        assert {subtask: e.events for subtask, (e,) in arrived.items()} == {carrier: foreign}


def test_restore_of_key_groups_that_do_not_exist_is_refused() -> None:
    with pytest.raises(ProtocolBugError, match="0 to 2"):
        route([Restore("totals", 9, {3: GroupManifest()})], ["totals"], Subtasks(3, 3))
