"""Delta deletion vectors: which rows of a file are dead, several vectors in one ``.bin`` file.

Format: the Delta protocol's "Deletion Vector Format". A file starts with a version byte; each vector is its size,
a magic number with a portable 64-bit roaring bitmap, and a checksum.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap, BitMap64

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.storage.filesystem import Folder

_MAGIC = struct.pack("<I", 1681511377)
_FILE_VERSION = b"\x01"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_COOKIES_32 = (12346, 12347)


@dataclass(frozen=True)
class DvRef:
    """Where a deletion vector is: file in the table folder, position, size of its payload, dead rows, checksum."""

    file: str
    offset: int
    size_bytes: int
    cardinality: int
    crc32: int

    def same_rows(self, other: DvRef | None) -> bool:
        """Whether both say the same rows are dead, wherever they are stored."""
        return other is not None and (self.cardinality, self.size_bytes, self.crc32) == (
            other.cardinality,
            other.size_bytes,
            other.crc32,
        )


def encode_rows(rows: Any) -> bytes:
    """Row numbers (any iterable or NumPy array) as :class:`~spark_ckpt.protocol.events.Flushed` carries them."""
    return bytes(BitMap64(rows).serialize())


def decode_rows(data: bytes) -> BitMap64:
    """Inverse of :func:`encode_rows`; takes a serialised 32-bit roaring bitmap too. Raises ``ValueError``."""
    if len(data) >= 4 and struct.unpack_from("<I", data)[0] & 0xFFFF in _COOKIES_32:
        return BitMap64(BitMap.deserialize(data))
    return BitMap64.deserialize(data)


def vector_payload(rows: BitMap64) -> bytes:
    """The bytes of a vector; the same rows always give the same bytes."""
    compact = BitMap64(rows)
    compact.run_optimize()
    return _MAGIC + bytes(compact.serialize())


def unstored(payload: bytes, cardinality: int) -> DvRef:
    """A reference to a vector that is in no file yet."""
    return DvRef("", 0, len(payload), cardinality, zlib.crc32(payload))


def write_vectors(folder: Folder, payloads: Mapping[str, bytes]) -> tuple[str, dict[str, int]]:
    """Write the vectors of several files into one ``.bin`` file; returns its name and each vector's offset.

    The file's name is new each time: after a crash, what an earlier attempt wrote is garbage.
    """
    name = f"deletion_vector_{uuid.uuid4()}.bin"
    body, offsets = bytearray(_FILE_VERSION), {}
    for file, payload in sorted(payloads.items()):
        offsets[file] = len(body)
        body += struct.pack(">I", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    folder.create(name, bytes(body))
    return name, offsets


def read_vector(folder: Folder, ref: DvRef) -> BitMap64:
    """The dead rows. Raises ``CorruptStorageError`` if the file is missing or damaged."""
    shown = f"{folder.shown(ref.file)} at {ref.offset}"
    try:
        data = folder.read_range(ref.file, ref.offset + 4, ref.size_bytes)
    except FileNotFoundError:
        raise _corrupt(shown, "a deletion vector", "no such file") from None
    if len(data) != ref.size_bytes or zlib.crc32(data) != ref.crc32 or data[:4] != _MAGIC:
        raise _corrupt(shown, f"{ref.size_bytes} bytes with checksum {ref.crc32}", f"{len(data)} with {zlib.crc32(data)}")
    return BitMap64.deserialize(data[4:])


def _corrupt(shown: str, expected: str, found: str) -> CorruptStorageError:
    return CorruptStorageError(
        f"Deletion vector {shown} is damaged: expected {expected}, found {found}. Restore another checkpoint."
    )


def to_delta(ref: DvRef) -> dict[str, Any]:
    """The ``deletionVector`` field of a Delta add or remove action."""
    unique = uuid.UUID(ref.file[len("deletion_vector_") : -len(".bin")])
    return {
        "storageType": "u",
        "pathOrInlineDv": _z85(unique.bytes),
        "offset": ref.offset,
        "sizeInBytes": ref.size_bytes,
        "cardinality": ref.cardinality,
    }


def _z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        text += "".join(_Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text
