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

from pyroaring import BitMap

from spark_ckpt.errors import RESTORE_ANOTHER, CorruptStorageError
from spark_ckpt.storage.filesystem import Folder

_MAGIC = struct.pack("<I", 1681511377)
# A 64-bit roaring bitmap is a number of 32-bit ones, each behind its high word. A state file has fewer than 2**32 rows.
_ONE_BITMAP = struct.pack("<QI", 1, 0)
_FILE_VERSION = b"\x01"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


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
    """Row numbers (an iterable or ``uint32`` array) as :class:`~spark_ckpt.protocol.events.Flushed` carries them."""
    return bytes(BitMap(rows).serialize())


def decode_rows(data: bytes) -> BitMap:
    """Inverse of :func:`encode_rows`. Raises ``CorruptStorageError``."""
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError):
        raise CorruptStorageError(f"expected the numbers of dead rows, found {len(data)} bytes that are none") from None


def vector_payload(rows: BitMap) -> bytes:
    """The bytes of a vector; the same rows always give the same bytes."""
    compact = BitMap(rows)
    compact.run_optimize()
    return _MAGIC + _ONE_BITMAP + bytes(compact.serialize())


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


def read_vector(folder: Folder, ref: DvRef) -> BitMap:
    """The dead rows. Raises ``CorruptStorageError`` if the file is missing or damaged."""
    shown = f"{folder.shown(ref.file)} at {ref.offset}"
    try:
        data = folder.read_range(ref.file, ref.offset + 4, ref.size_bytes)
    except FileNotFoundError:
        raise _corrupt(shown, "a deletion vector", "no such file") from None
    checksum = zlib.crc32(data)
    if len(data) != ref.size_bytes or checksum != ref.crc32:
        raise _corrupt(shown, f"{ref.size_bytes} bytes, checksum {ref.crc32}", f"{len(data)}, checksum {checksum}")
    try:
        return BitMap.deserialize(data[len(_MAGIC + _ONE_BITMAP) :])
    except (ValueError, IndexError):  # its checksum is right: whoever wrote it wrote no bitmap
        raise _corrupt(shown, "a roaring bitmap", f"{len(data)} bytes of something else") from None


def _corrupt(shown: str, expected: str, found: str) -> CorruptStorageError:
    return CorruptStorageError(
        f"Deletion vector {shown} is damaged: expected {expected}, found {found}; {RESTORE_ANOTHER}."
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
