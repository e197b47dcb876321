"""A running driver's heartbeat, ``alive/<generation>.json``: written beside the query, read by who cleans up."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from spark_ckpt import clock
from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.alive import BEAT_MS, EXPIRES_MS, Heartbeat, ProcessName, is_alive, refuse_while_alive
from spark_ckpt.protocol.topology import Refuse
from spark_ckpt.storage.job_paths import JobPaths

_log = logging.getLogger("spark_ckpt")
_ENDING_S = 5.0
"""How long a driver on this machine may take to end after its query did."""


class Heart:
    """Beats in a thread of its own, so that a long batch is no silence and no batch waits for it.

    First in the process that starts the query, from its claim on; then in the source's, which takes the record over.
    """

    def __init__(self, records: JobRecords, generation: int, every_ms: int = BEAT_MS) -> None:
        self._records = records
        self._generation = generation
        self._every_s = every_ms / 1000
        self._stopped = threading.Event()
        self._warned = False
        self._is_active: Callable[[], bool] | None = None
        self._thread = threading.Thread(target=self._run, name="spark-ckpt heartbeat", daemon=True)

    def start(self) -> Heart:
        self.beat()
        self._thread.start()
        return self

    def beat(self) -> None:
        """Never fails: a job that cannot say that it lives still lives."""
        now_ms, g = clock.now_ms(), self._generation
        said = Heartbeat(g, this_process(), now_ms, now_ms + EXPIRES_MS)
        try:
            # A folder that was removed under the query must not come back.
            if self._records.store.exists(JobPaths.generation(g)):
                self._records.store.replace(JobPaths.alive(g), "alive", said.to_json(), durable=False)
        except Exception as e:  # noqa: BLE001 - whatever a file system raises
            if not self._warned:
                self._warned = True
                _log.warning("The heartbeat that keeps gc away while this query runs cannot be written: %s", e)

    def hand_over(self, is_active: Callable[[], bool]) -> None:
        """The query runs: beat on until its source does, or until it is no more active."""
        self._is_active = is_active

    def stop(self) -> None:
        """The query ended."""
        self._stopped.set()
        self._thread.join(self._every_s)
        self._forget()

    def _forget(self) -> None:
        try:
            self._records.store.delete(JobPaths.alive(self._generation))
        except Exception as e:  # noqa: BLE001 - it expires
            _log.warning("The heartbeat of the ended query cannot be removed and expires in a minute: %s", e)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            if self._is_active is not None and self._taken_over():
                return
            try:
                active = self._is_active is None or self._is_active()
            except Exception as e:  # noqa: BLE001 - whatever PySpark raises when its JVM or server has gone
                _log.warning("Whether the query runs is not known, its heartbeat ends and expires in a minute: %s", e)
                return
            if not active:
                self._forget()
                return
            self.beat()

    def _taken_over(self) -> bool:
        try:
            said = _read(self._records, JobPaths.alive(self._generation))
        except Exception:  # noqa: BLE001 - whatever a file system raises: the next time may tell
            return False
        return said is not None and said.process != this_process()


class FirstBeats:
    """Of a start: from its claim until its query is started, or has failed to. ``with FirstBeats() as beats:``"""

    def __init__(self) -> None:
        self._hearts: list[Heart] = []

    def __enter__(self) -> FirstBeats:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.stop()

    def on_claim(self, records: JobRecords, generation: int) -> None:
        self._hearts.append(Heart(records, generation).start())

    def hand_over(self, is_active: Callable[[], bool]) -> None:
        for heart in self._hearts:
            heart.hand_over(is_active)

    def stop(self) -> None:
        for heart in self._hearts:
            heart.stop()


def require_stopped(records: JobRecords, job: str, what: str, besides: int | None = None) -> None:
    """Raise ``InvalidInputError`` while a driver runs the job; ``besides`` is a generation that may."""
    deadline = time.monotonic() + _ENDING_S
    while True:
        found = [b for b in living(records) if b.generation != besides]
        # What has just ended goes away by itself: Spark ends the process some moments after the query.
        if not any(b.process.place == this_process().place for b in found) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    refused = refuse_while_alive(what, job, found, clock.now_ms())
    if isinstance(refused, Refuse):
        raise InvalidInputError(refused.reason)


def is_heard(records: JobRecords) -> bool:
    """Whether a driver runs the job, as far as its heartbeats tell. Raises ``CorruptStorageError``."""
    return bool(living(records))


def drop_dead(records: JobRecords) -> None:
    """Forget heartbeats of drivers that crashed."""
    kept = {JobPaths.alive(b.generation) for b in living(records)}
    for path in _beats(records):
        if path not in kept:
            records.store.delete(path)


def living(records: JobRecords) -> list[Heartbeat]:
    """Those of drivers that run the job. Raises ``CorruptStorageError``."""
    return [b for b in heartbeats(records) if beats(b)]


def beats(beat: Heartbeat) -> bool:
    """Whether the driver that left ``beat`` runs the job still."""
    return is_alive(beat, clock.now_ms(), this_process().place, _runs(beat.process))


def heartbeats(records: JobRecords) -> list[Heartbeat]:
    """All that are there: a driver that crashed leaves its last one. Raises ``CorruptStorageError``."""
    found = (_read(records, path) for path in _beats(records))
    return [b for b in found if b is not None]


def _beats(records: JobRecords) -> list[str]:
    return [JobPaths.listed("alive", name) for name in records.store.names("alive")]


def _read(records: JobRecords, path: str) -> Heartbeat | None:
    try:
        body = records.store.read(path, "alive")
        return None if body is None else Heartbeat.from_json(body, path)
    except CorruptStorageError as damage:
        raise CorruptStorageError(
            f"{path} of {records.store.url}, which tells whether a driver runs the job, is damaged. If none does,"
            f" remove the file. ({str(damage).split(';')[0]})"
        ) from None


def this_process() -> ProcessName:
    host, pid = socket.gethostname(), os.getpid()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        place = f"{host} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ProcessName(host, "", pid, "")
    return ProcessName(host, place, pid, _started(pid))


def _runs(process: ProcessName) -> bool:
    return bool(process.started) and _started(process.pid) == process.started


def _started(pid: int) -> str:
    """When the process started, in the system's ticks; empty if there is none or it is a zombie."""
    try:
        # Behind the name, which may hold anything: state is the 1st field there, the start the 20th.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
