"""The run cache: the right rows whatever happens to its files, and no more disk than allowed."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol.events import Run
from spark_ckpt.state.lsm._interfaces import RunReader
from spark_ckpt.storage import _cache_folder as cache_folder
from spark_ckpt.storage import run_cache, run_files
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.run_cache import RunCache, forget_cached
from spark_ckpt.storage.run_files import open_run_file, read_row_group, row_groups, write_run_file
from spark_ckpt.types import KEY_GROUP, KEY_HASH
from tests.how_many import some

MANY = 64 * 2**20


def _rows(groups: int = 4, each: int = 100) -> pa.Table:
    rows = groups * each
    return pa.table(
        {
            "k": [f"key {i}" for i in range(rows)],
            "v": [[float(i)] if i % 3 else None for i in range(rows)],
            KEY_GROUP: pa.array([i // each for i in range(rows)], pa.int32()),
            KEY_HASH: pa.array(range(rows), pa.int64()),
        }
    )


def _run(group: int, each: int = 100, file: str = "a.parquet") -> Run:
    return Run(file, group * each, each, 1)


def _last_byte(column: pq.ColumnChunkMetaData) -> int:
    """A byte of the column's last page; the page's header, before it, has no checksum."""
    return int(column.data_page_offset + column.total_compressed_size - 1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "state" / "u")
    write_run_file(url, "a.parquet", _rows())
    return url


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _cached(cache_dir: Path) -> list[Path]:
    return sorted(p for p in cache_dir.glob("*/*") if p.is_file())


def test_a_run_is_read_from_storage_once_and_from_the_cache_then(url: str, cache_dir: Path) -> None:
    expected = _rows().drop_columns([KEY_GROUP])
    reader: RunReader = RunCache(url, str(cache_dir), MANY)
    for group in range(4):
        assert pa.Table.from_batches([reader.read(_run(group))]).equals(expected.slice(group * 100, 100))
    (Path(url) / "a.parquet").unlink()
    restarted = RunCache(url, str(cache_dir), MANY)
    assert pa.Table.from_batches([restarted.read(_run(2))]).equals(expected.slice(200, 100))


def test_what_the_snapshot_stage_put_is_never_read_from_storage(url: str, cache_dir: Path) -> None:
    RunCache(url, str(cache_dir), MANY).put("new.parquet", _rows())  # not on storage at all
    batch = RunCache(url, str(cache_dir), MANY).read(_run(3, file="new.parquet"))
    assert batch.column("k").to_pylist() == _rows().slice(300, 100)["k"].to_pylist()


def test_runs_of_one_file_share_one_memory_map(url: str, cache_dir: Path) -> None:
    cache = RunCache(url, str(cache_dir), MANY)
    cache.put("a.parquet", _rows())
    before = pa.total_allocated_bytes()
    first, second = cache.read(_run(0)), cache.read(_run(3))
    assert pa.total_allocated_bytes() == before
    assert first.column("k").buffers()[2].address == second.column("k").buffers()[2].address


def test_only_the_row_groups_of_a_run_are_decoded(url: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "ROW_GROUP_ROWS", 250)
    write_run_file(url, "b.parquet", _rows())
    path = Path(url) / "b.parquet"
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [200, 200]
    data = bytearray(path.read_bytes())
    data[_last_byte(groups.row_group(1).column(0))] ^= 0xFF
    path.write_bytes(bytes(data))
    cache = RunCache(url, str(cache_dir), MANY)
    assert cache.read(_run(1, file="b.parquet")).num_rows == 100
    with pytest.raises(CorruptStorageError, match=r"b\.parquet"):
        cache.read(_run(2, file="b.parquet"))


def test_row_groups_are_cut_between_key_groups_unless_one_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "ROW_GROUP_ROWS", 100)
    sizes = [30, 60, 50, 230, 20]
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    cut = list(row_groups(pa.table({KEY_GROUP: pa.array(groups, pa.int32())})))
    assert cut == [(0, 90), (90, 140), (140, 240), (240, 340), (340, 390)]
    assert list(row_groups(pa.table({KEY_GROUP: pa.array([], pa.int32())}))) == []


def test_a_run_over_several_row_groups_is_one_batch(url: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "ROW_GROUP_ROWS", 30)
    write_run_file(url, "b.parquet", _rows())
    batch = RunCache(url, str(cache_dir), MANY).read(_run(1, file="b.parquet"))
    assert batch.column(KEY_HASH).to_pylist() == list(range(100, 200))


@pytest.mark.parametrize("damage", [b"", b"ARROW1", b"x" * 5000])
@pytest.mark.parametrize("put", [True, False])
def test_a_damaged_cache_file_is_read_again_from_storage(url: str, cache_dir: Path, damage: bytes, put: bool) -> None:
    cache = RunCache(url, str(cache_dir), MANY)
    if put:
        cache.put("a.parquet", _rows())
    else:
        cache.read(_run(0))
    (cached,) = _cached(cache_dir)
    cached.write_bytes(damage)
    again = RunCache(url, str(cache_dir), MANY)
    assert again.read(_run(1)).column(KEY_HASH).to_pylist() == list(range(100, 200))


def test_a_cache_file_cut_short_is_read_again_from_storage(url: str, cache_dir: Path) -> None:
    RunCache(url, str(cache_dir), MANY).put("a.parquet", _rows())
    (cached,) = _cached(cache_dir)
    cached.write_bytes(cached.read_bytes()[:-100])
    assert RunCache(url, str(cache_dir), MANY).read(_run(1)).num_rows == 100


def test_a_cache_file_of_fewer_rows_is_read_again_from_storage(url: str, cache_dir: Path) -> None:
    RunCache(url, str(cache_dir), MANY).put("a.parquet", _rows().slice(0, 150))
    assert RunCache(url, str(cache_dir), MANY).read(_run(1)).num_rows == 100


def test_a_missing_state_file_is_named(url: str, cache_dir: Path) -> None:
    with pytest.raises(CorruptStorageError, match=r"u/b\.parquet.*no such file.*restore another checkpoint"):
        RunCache(url, str(cache_dir), MANY).read(_run(0, file="b.parquet"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_state_file_is_named(url: str, cache_dir: Path, damage: str) -> None:
    path = Path(url) / "a.parquet"
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[_last_byte(pq.ParquetFile(path).metadata.row_group(0).column(0))] ^= 0xFF
    path.write_bytes({"cut": bytes(data[:-50]), "flipped": bytes(data), "empty": b""}[damage])
    with pytest.raises(CorruptStorageError, match=r"a\.parquet cannot be read: expected a complete Parquet file"):
        RunCache(url, str(cache_dir), MANY).read(_run(0))


@settings(max_examples=some(75), deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_of_a_state_file_changes_what_is_read(place: float, bit: int) -> None:
    folder = Folder(f"memory://{uuid.uuid4().hex}")
    write_run_file(folder, "a.parquet", _rows())
    data = bytearray(folder.read("a.parquet") or b"")
    data[int(place * len(data))] ^= 1 << bit
    folder.replace("a.parquet", bytes(data))
    with contextlib.suppress(CorruptStorageError), open_run_file(folder, "a.parquet") as file:
        assert read_row_group(folder, "a.parquet", file, 0).equals(_rows())


def test_a_run_beyond_its_file_is_refused(url: str, cache_dir: Path) -> None:
    with pytest.raises(CorruptStorageError, match=r"a\.parquet has 400 rows: expected at least 500"):
        RunCache(url, str(cache_dir), MANY).read(_run(4))


def test_tables_with_equal_file_names_do_not_mix(url: str, tmp_path: Path, cache_dir: Path) -> None:
    other = str(tmp_path / "other" / "u")
    write_run_file(other, "a.parquet", _rows(groups=1, each=3))
    RunCache(url, str(cache_dir), MANY).read(_run(0))
    assert RunCache(other, str(cache_dir), MANY).read(Run("a.parquet", 0, 3, 1)).num_rows == 3


def test_the_cache_keeps_to_its_bytes_and_drops_what_was_used_longest_ago(url: str, cache_dir: Path) -> None:
    size = _size_of_one(url, cache_dir)
    limit = 10 * size
    cache = RunCache(url, str(cache_dir), limit)
    for number in range(40):
        cache.put(f"{number}.parquet", _rows())
        assert sum(p.stat().st_size for p in _cached(cache_dir)) <= limit + limit / 16 + size
    assert cache.read(_run(0, file="39.parquet")).num_rows == 100
    with pytest.raises(CorruptStorageError):  # dropped, and on storage it never was
        cache.read(_run(0, file="0.parquet"))


def _size_of_one(url: str, cache_dir: Path) -> int:
    RunCache(url, str(cache_dir), MANY).put("one.parquet", _rows())
    return _cached(cache_dir)[0].stat().st_size


def test_rows_stay_readable_when_another_process_drops_their_file(url: str, cache_dir: Path) -> None:
    cache = RunCache(url, str(cache_dir), MANY)
    batch = cache.read(_run(0))
    for path in _cached(cache_dir):
        path.unlink()
    assert batch.column(KEY_HASH).to_pylist() == list(range(100))
    assert cache.read(_run(1)).num_rows == 100
    assert RunCache(url, str(cache_dir), MANY).read(_run(1)).num_rows == 100


def test_a_cache_folder_that_cannot_be_written_only_costs_time(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = RunCache(url, str(tmp_path / "file"), MANY)
    cache.put("a.parquet", _rows())
    assert cache.read(_run(2)).column(KEY_HASH).to_pylist() == list(range(200, 300))


def _read_all(job: tuple[str, str, int]) -> list[int]:
    url, cache_dir, limit = job
    found: list[int] = []
    for _ in range(5):
        cache = RunCache(url, cache_dir, limit)
        for group in range(4):
            found += cache.read(_run(group)).column(KEY_HASH).to_pylist()
            cache.put("a.parquet", _rows())
    return found


def test_processes_share_a_folder_that_is_too_small_for_all(url: str, cache_dir: Path) -> None:
    jobs = [(url, str(cache_dir), 5000)] * 2
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(_read_all, jobs)) == [list(range(400)) * 5] * 2


def test_no_flipped_or_missing_byte_of_a_cache_file_changes_what_is_read(url: str, cache_dir: Path) -> None:
    """Every byte of the file. What is damaged is decoded again from the state file, and written anew."""
    small = _rows(groups=1, each=3)
    write_run_file(url, "small.parquet", small)
    RunCache(url, str(cache_dir), MANY).put("small.parquet", small)
    (cached,) = _cached(cache_dir)
    sound, wanted = cached.read_bytes(), small.drop_columns([KEY_GROUP])
    for place in range(len(sound)):
        flipped = sound[:place] + bytes([sound[place] ^ (1 << place % 8)]) + sound[place + 1 :]
        for damaged in (flipped, sound[:place]):
            cached.write_bytes(damaged)
            cache = RunCache(url, str(cache_dir), MANY)
            if place % 20:
                assert cache._files.read(cached.name) is None
            else:
                assert pa.Table.from_batches([cache.read(_run(0, 3, "small.parquet"))]).equals(wanted)


def test_a_checksum_is_looked_at_once_in_a_process(url: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ckpt.storage.run_cache._MAX_OPEN", 1)
    sums: list[int] = []
    checksum = cache_folder._checksum
    monkeypatch.setattr(cache_folder, "_checksum", lambda data: sums.append(1) or checksum(data))
    cache = RunCache(url, str(cache_dir), MANY)
    for name in ("a.parquet", "b.parquet"):
        cache.put(name, _rows())
    sums.clear()
    for _ in range(5):  # each pushes the other's map out
        cache.read(_run(0)), cache.read(_run(0, file="b.parquet"))
    assert sums == []  # this process summed what it wrote
    cache = RunCache(url, str(cache_dir), MANY)
    for _ in range(5):
        cache.read(_run(0)), cache.read(_run(0, file="b.parquet"))
    assert len(sums) == 2


def test_cache_folders_and_files_are_the_users_alone(url: str, cache_dir: Path) -> None:
    previous = os.umask(0)
    try:
        RunCache(url, str(cache_dir), MANY).read(_run(0))
    finally:
        os.umask(previous)
    (cached,) = _cached(cache_dir)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (cache_dir, cached.parent, cached)]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("planted", ["open to others", "somebody else's", "a link", "a file"])
def test_a_planted_folder_is_not_used(
    url: str, cache_dir: Path, tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunCache(url, str(cache_dir), MANY).put("a.parquet", _rows().slice(100))  # wrong rows with a good checksum
    (cached,) = _cached(cache_dir)
    if planted == "open to others":
        cached.parent.chmod(0o770)
    elif planted == "somebody else's":
        if os.geteuid() == 0:
            os.chown(cached.parent, 12345, 12345)
        else:
            pytest.skip("needs root to give a folder away")
    else:
        moved = cached.parent.rename(tmp_path / "elsewhere")
        if planted == "a link":
            cached.parent.symlink_to(moved)
        else:
            cached.parent.write_text("a file")
    for _ in range(2):  # the second time from the folder used instead
        assert RunCache(url, str(cache_dir), MANY).read(_run(0)).column(KEY_HASH).to_pylist() == list(range(100))
    (instead,) = (p for p in cache_dir.iterdir() if p.name != cached.parent.name)
    assert [p.name for p in instead.iterdir()] == ["a.parquet.all.arrow"]


def test_the_budget_removes_nothing_behind_links(url: str, cache_dir: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").write_bytes(b"x" * 100_000)
    cache_dir.mkdir()
    (cache_dir / "link").symlink_to(precious)
    cache = RunCache(url, str(cache_dir), 10_000)
    for number in range(5):
        cache.put(f"{number}.parquet", _rows())
    assert (precious / "file").exists()


def test_a_cache_folder_that_was_tidied_up_is_made_again(url: str, cache_dir: Path) -> None:
    cache = RunCache(url, str(cache_dir), MANY)
    cache.put("a.parquet", _rows())
    shutil.rmtree(cache_dir)
    cache.put("b.parquet", _rows())
    assert [p.name for p in _cached(cache_dir)] == ["b.parquet.all.arrow"]


def test_what_is_cached_of_collected_state_goes_with_it(url: str, cache_dir: Path) -> None:
    forget_cached(url, str(cache_dir), ["a.parquet"])
    assert not cache_dir.exists(), "a machine without a cache gets none"
    cache = RunCache(url, str(cache_dir), MANY)
    cache.put("b.parquet", _rows())
    held = cache.read(_run(0))
    forget_cached(url, str(cache_dir), ["a.parquet", "never.parquet"])
    assert {p.name for p in _cached(cache_dir)} == {"b.parquet.all.arrow"}
    assert held.num_rows == 100, "who has it open goes on"
    forget_cached(url, str(cache_dir), ["b.parquet"])
    assert _cached(cache_dir) == []


def test_a_process_that_writes_drops_what_was_collected_elsewhere(
    url: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr(run_cache.time, "time", lambda: now[0])
    cache = RunCache(url, str(cache_dir), MANY)
    for name in ("a.parquet", "gone.parquet", "fresh.parquet"):
        cache.put(name, _rows())
    cache.read(_run(0, file="gone.parquet"))
    write_run_file(url, "b.parquet", _rows())
    now[0] += 601
    fresh = next(p for p in _cached(cache_dir) if p.name.startswith("fresh"))
    os.utime(fresh, (now[0], now[0]))  # its state file is being written
    cache.put("b.parquet", _rows())
    assert {p.name.partition(".")[0] for p in _cached(cache_dir)} == {"a", "b", "fresh"}
    with pytest.raises(CorruptStorageError, match=r"gone\.parquet"):
        cache.read(_run(0, file="gone.parquet"))


def test_what_nobody_used_for_a_week_goes_whosever_it_is(url: str, tmp_path: Path, cache_dir: Path) -> None:
    RunCache(url, str(cache_dir), MANY).put("a.parquet", _rows())
    (old,) = _cached(cache_dir)
    os.utime(old, (time.time() - 8 * 86_400,) * 2)
    RunCache(str(tmp_path / "another table"), str(cache_dir), MANY).put("a.parquet", _rows())
    assert old not in _cached(cache_dir)
    assert len(_cached(cache_dir)) == 1
