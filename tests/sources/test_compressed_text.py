"""Text files are decompressed as Spark does it, by the endings of their names; no others are taken for text."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.errors import BadRecordError
from spark_ckpt.sources import _compressed
from spark_ckpt.sources.base import InnerReader
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.files import FilesSource


def read(path: Path, kind: str = "text", **options: Any) -> list[Any]:
    given = {"path": str(path), "fileFormat": kind, "discoveryInterval": "0s"}
    source = FilesSource({**given, **{k: str(v) for k, v in options.items()}})
    source.metadata_url = str(path.with_name("job"))
    reader = InnerReader(source, parse_ddl("value string" if kind == "text" else "a long"))
    at, found = reader.initial(), []
    while (end := reader.latest(at, False)) != at:
        for split in reader.splits(at, end):
            found += [row for batch in reader.read(split) for row in batch.column(0).to_pylist()]
        at = end
    return found


def blocks(codec: str, *contents: bytes, chunk: int = 1 << 30) -> bytes:
    """In Hadoop's framing: a block for each of ``contents``, in chunks of so many bytes."""
    found = []
    for content in contents:
        found.append(len(content).to_bytes(4, "big"))
        for at in range(0, len(content), chunk):
            packed = pa.Codec(codec).compress(content[at : at + chunk], asbytes=True)
            found.append(len(packed).to_bytes(4, "big") + packed)
    return b"".join(found)


PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".gzip": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".lz4": lambda data: blocks("lz4_raw", data),
    ".snappy": lambda data: blocks("snappy", data),
    ".zst": lambda data: bytes(pa.Codec("zstd").compress(data, asbytes=True)),
    ".zstd": lambda data: bytes(pa.Codec("zstd").compress(data, asbytes=True)),
    ".xz": lzma.compress,
}
LINES = [f"{n} {Random(n).random()}" for n in range(2000)]
TEXT = "".join(line + "\n" for line in LINES).encode()


@pytest.mark.parametrize("ending", PACKED)
@pytest.mark.parametrize("upper", [False, True])
def test_each_ending_is_read_in_full_in_one_batch_or_many(tmp_path: Path, ending: str, upper: bool) -> None:
    file = tmp_path / f"a.txt{ending.upper() if upper else ending}"
    file.write_bytes(PACKED[ending](TEXT))
    assert read(tmp_path / "a*") == LINES
    assert read(tmp_path / "a*", maxRowsPerTrigger=700) == LINES


@pytest.mark.parametrize("ending", PACKED)
def test_several_streams_in_one_file_are_all_read(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.txt{ending}").write_bytes(PACKED[ending](TEXT) + PACKED[ending](b"more\n"))
    assert read(tmp_path / "a*") == [*LINES, "more"]


@pytest.mark.parametrize("ending", PACKED)
def test_a_file_that_ends_too_early_is_told_of(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.txt{ending}").write_bytes(PACKED[ending](TEXT)[:-5])
    with pytest.raises(BadRecordError, match="cannot be decompressed"):
        read(tmp_path / "a*")


@pytest.mark.parametrize("ending", PACKED)
def test_plain_text_with_the_ending_of_a_compression_is_told_of(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.json{ending}").write_bytes(b'{"a":1}\n')
    with pytest.raises(BadRecordError, match="cannot be decompressed"):
        read(tmp_path / "a*", "json", mode="PERMISSIVE")


@pytest.mark.parametrize("codec", ["lz4_raw", "snappy"])
@pytest.mark.parametrize("chunk", [100, 65_536, 1 << 20])
def test_blocks_of_hadoop_may_have_several_chunks(tmp_path: Path, codec: str, chunk: int) -> None:
    """As Hadoop writes what comes to it in one piece that is larger than its buffer."""
    ending = {"lz4_raw": "lz4", "snappy": "snappy"}[codec]
    contents = [b"x" * 300_000 + b"\n", TEXT, Random(1).randbytes(1000).hex().encode() * 70]
    (tmp_path / f"a.{ending}").write_bytes(blocks(codec, *contents, chunk=chunk))
    assert read(tmp_path / "a*") == b"".join(contents).decode().splitlines()


@pytest.mark.parametrize("size", [1, 14, 15, 16, 254, 255, 256, 270, 271, 5000])
def test_the_length_of_what_a_chunk_holds_is_found_whatever_it_is(size: int) -> None:
    random = Random(size)
    for content in (b"x" * size, random.randbytes(size), random.randbytes(size) + b"ab" * size):
        packed = pa.Codec("lz4_raw").compress(content, asbytes=True)
        assert _compressed._lz4_size(packed) == len(content)
        assert _compressed._lz4(packed, 1 << 20) == _compressed._lz4(packed, len(content)) == content


ELSEWHERE = {
    "gzip": (gzip.compress(TEXT), r"\.gz"),
    "zstd": (PACKED[".zst"](TEXT), r"\.zst"),
    "bzip2": (bz2.compress(TEXT), r"\.bz2"),
    "xz": (lzma.compress(TEXT), r"\.xz"),
    "zlib": (zlib.compress(TEXT), r"\.deflate"),
    "zip": (b"PK\x03\x04 and more", "write it as"),
    "lz4": (b"\x04\x22\x4d\x18 and more", "write it as"),
    "snappy": (b"\xff\x06\x00\x00sNaPpY and more", "write it as"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("kind", ["text", "json", "csv"])
def test_what_is_compressed_and_not_named_so_is_never_taken_for_text(tmp_path: Path, name: str, kind: str) -> None:
    content, ending = ELSEWHERE[name]
    (tmp_path / "a.packed").write_bytes(content)
    mode = {} if kind == "text" else {"mode": "PERMISSIVE"}
    with pytest.raises(BadRecordError, match=rf"a\.packed.*it is compressed \({re.escape(name)}.*{ending}"):
        read(tmp_path / "a*", kind, **mode)


def test_a_damaged_length_asks_for_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a.snappy").write_bytes(b"\x7f\xff\xff\xff" * 2 + b"some")
    with pytest.raises(BadRecordError, match="ends within its compressed data"):
        read(tmp_path / "a*")


def test_seeking_back_reads_the_same_once_more(tmp_path: Path) -> None:
    (tmp_path / "a.lz4").write_bytes(blocks("lz4_raw", TEXT, TEXT[:100]))
    content = TEXT + TEXT[:100]
    with _compressed.opened(lambda: (tmp_path / "a.lz4").open("rb"), "a.lz4") as file:
        for at in (0, 50, 10, len(content) - 3, 7):
            assert file.seek(at) == at
            assert file.read(20) == content[at : at + 20]
