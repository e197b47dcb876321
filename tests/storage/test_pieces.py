"""Large writes to local files are made of small ones, whoever makes them."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from spark_ckpt.storage._pieces import PieceWriter, write_pieces

MOST = 2**18


class Noted(io.BytesIO):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def write(self, data) -> int:
        self.sizes.append(len(data))
        return super().write(data)


@pytest.mark.parametrize("size", [0, 1, MOST, MOST + 1, 3 * MOST])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_all_bytes_are_written_in_order_and_none_at_once(kind, size):
    data, file = bytes(i % 251 for i in range(size)), Noted()
    write_pieces(file, kind(data))
    assert file.getvalue() == data
    assert max(file.sizes, default=0) <= MOST


def test_arrow_writes_a_batch_through_it():
    file, batch = Noted(), pa.RecordBatch.from_pydict({"a": list(range(200_000)), "b": [None, "x"] * 100_000})
    with pa.ipc.new_file(PieceWriter(file), batch.schema) as writer:
        writer.write_batch(batch)
    assert pa.ipc.open_file(file.getvalue()).get_batch(0).equals(batch)
    assert MOST / 2 < max(file.sizes) <= MOST
