"""What may pass is tried again, for a bounded time; nothing else is."""

from __future__ import annotations

import errno
import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CorruptStorageError, StorageNotWritableError, StorageUnavailableError
from spark_ckpt.storage import filesystem
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.record_store import Created, Exists, RecordStore
from spark_ckpt.storage.retry import Retry, describe, is_storage_failure, may_pass


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s, self.slept = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def retry(self, timeout_s: float = 30.0, luck: float = 1.0) -> Retry:
        return Retry(timeout_s, 0.1, 5.0, self.sleep, lambda: luck, lambda: self.now_s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def action(*errors: Exception) -> Callable[[], int]:
    """Raises these one after another, then says how often it was tried."""
    left, tried = list(errors), 0

    def act() -> int:
        nonlocal tried
        tried += 1
        if left:
            raise left.pop(0)
        return tried

    return act


def busy() -> OSError:
    return OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def test_pauses_double_up_to_a_limit(clock: Clock) -> None:
    assert clock.retry().call(action(*[busy() for _ in range(8)])) == 9
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_pauses_vary_between_half_and_all(clock: Clock) -> None:
    clock.retry(luck=0.0).call(action(busy(), busy()))
    assert clock.slept == [0.05, 0.1]
    rng = random.Random(0)
    found = [next(Retry(random=rng.random).pauses()) for _ in range(100)]
    assert 0.05 <= min(found) < 0.055 < 0.095 < max(found) <= 0.1


def test_it_ends_within_its_time(clock: Clock) -> None:
    with pytest.raises(OSError, match="busy"):
        clock.retry(timeout_s=1.0).call(action(*[busy() for _ in range(99)]))
    assert clock.now_s <= 1.0
    assert len(clock.slept) == 3


def test_an_operation_that_took_all_the_time_itself_is_not_tried_again(clock: Clock) -> None:
    def slow() -> None:
        clock.now_s += 31
        raise TimeoutError

    with pytest.raises(TimeoutError):
        clock.retry().call(slow)
    assert clock.slept == []


def test_nothing_is_tried_again_without_time(clock: Clock) -> None:
    with pytest.raises(OSError, match="busy"):
        clock.retry(timeout_s=0).call(action(busy()))


class ServerTimeoutError(Exception):
    """As clients have them: of no family, but with an HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__("key=hunter2")
        self.status = status


class ReadTimeoutError(Exception):
    """As botocore names it."""


@pytest.mark.parametrize(
    "error",
    [busy(), TimeoutError(), ConnectionResetError(), OSError(errno.EIO, "I/O"), OSError(errno.ESTALE, "NFS"),
     BrokenPipeError(), ServerTimeoutError(503), ServerTimeoutError(429), ReadTimeoutError(),
     StorageUnavailableError("x")],
    ids=repr,
)  # fmt: skip
def test_what_may_pass(error: Exception) -> None:
    assert may_pass(error)
    assert is_storage_failure(error)
    assert "hunter2" not in describe(error)


@pytest.mark.parametrize(
    "error",
    [PermissionError(errno.EACCES, "no"), FileNotFoundError(), FileExistsError(), OSError(errno.ENOSPC, "full"),
     OSError("nobody knows"), ServerTimeoutError(403), ServerTimeoutError(401), ServerTimeoutError(404),
     ValueError("bug"), CorruptStorageError("damaged"), StorageNotWritableError("no")],
    ids=repr,
)  # fmt: skip
def test_what_does_not_pass(error: Exception, clock: Clock) -> None:
    assert not may_pass(error)
    with pytest.raises(type(error)):
        clock.retry().call(action(error))
    assert clock.slept == []


def test_it_is_bounded_below_the_time_out_of_a_checkpoint() -> None:
    config = JobConfig.from_options({"dir": "/x", "timeout": "10s", "retry.timeout": "1h", "retry.firstPause": "1s"})
    retry = Retry.of(config)
    assert (retry.timeout_s, retry.first_pause_s) == (5.0, 1.0)
    assert Retry.of(JobConfig.from_options({"dir": "/x"})).timeout_s == 30.0


# --- folders and records ---------------------------------------------------------------------------------------


def failing_once(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, after: bool = False) -> list[int]:
    """``filesystem.<name>`` fails the first time, before or after it did its work."""
    real, calls = getattr(filesystem, name), [0]

    def fail(*args: object) -> object:
        calls[0] += 1
        if calls[0] == 1 and not after:
            raise error
        result = real(*args)
        if calls[0] == 1:
            raise error
        return result

    monkeypatch.setattr(filesystem, name, fail)
    return calls


def test_a_write_that_fails_once_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    failing_once(monkeypatch, "sync_file", OSError(errno.EIO, "I/O"))
    folder = Folder(str(tmp_path), retry=clock.retry())
    assert folder.create("x", b"1")
    assert folder.read("x") == b"1"
    assert folder.names(".tmp") == []
    assert len(clock.slept) == 1


def test_a_create_whose_answer_was_lost_is_known_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    folder = Folder(str(tmp_path), retry=clock.retry())
    folder.create("other", b"2")
    calls = failing_once(monkeypatch, "sync_folder", OSError(errno.EIO, "I/O"), after=True)
    assert folder.create("x", b"1")
    assert calls[0] == 2, "its name is synced again"
    calls[0] = 0
    assert not folder.create("other", b"1"), "and what somebody else created is not"
    store = RecordStore(str(tmp_path), retry=clock.retry())
    calls[0] = 0
    assert isinstance(store.create("record", "k", {"a": 1}), Created)
    calls[0] = 1
    assert isinstance(store.create("record", "k", {"a": 1}), Exists)


def test_a_create_that_the_stores_client_sent_twice_is_known_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As aiohttp does where a connection breaks that it had kept: the second time the name is there."""
    folder = Folder(f"memory://{uuid.uuid4().hex}")
    once = folder.fs.pipe_file

    def twice(path: str, data: bytes, mode: str) -> None:
        once(path, data, mode=mode)
        once(path, data, mode=mode)

    monkeypatch.setattr(folder.fs, "pipe_file", twice)
    assert folder.create("a", b"mine")
    assert not folder.create("a", b"another's")
    assert folder.read("a") == b"mine"


def test_storage_that_does_not_answer_is_told_from_storage_that_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    store = RecordStore(str(tmp_path), retry=clock.retry())

    def fails_with(error: OSError) -> None:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(filesystem.os, "open", fail)
        monkeypatch.setattr(filesystem, "sync_file", fail)

    fails_with(OSError(errno.ETIMEDOUT, "timed out"))
    with pytest.raises(StorageUnavailableError, match=r"could not be written for 30 s.*timed out.*retry\.timeout"):
        store.replace("x", "k", {})
    assert 25 < clock.now_s <= 30
    fails_with(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(StorageNotWritableError, match="No space left"):
        store.replace("x", "k", {})
    assert clock.now_s <= 30, "at once"
