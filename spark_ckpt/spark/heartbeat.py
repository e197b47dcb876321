"""A running driver's heartbeat, ``alive/<generation>.json``: written beside the query, read by who cleans up."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from pathlib import Path

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.protocol.alive import BEAT_MS, EXPIRES_MS, Heartbeat, ProcessName, is_alive, refuse_while_alive
from spark_ckpt.protocol.topology import Refuse
from spark_ckpt.spark.job_records import JobRecords, id_name

_log = logging.getLogger("spark_ckpt")
_ENDING_S = 5.0
"""How long a driver on this machine may take to end after its query did."""


class Heart:
    """Beats in a thread of its own, so that a long batch is no silence and no batch waits for it. Source process."""

    def __init__(self, records: JobRecords, generation: int, every_ms: int = BEAT_MS) -> None:
        self._records = records
        self._generation = generation
        self._every_s = every_ms / 1000
        self._stopped = threading.Event()
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="spark-ckpt heartbeat", daemon=True)

    def start(self) -> Heart:
        self.beat()
        self._thread.start()
        return self

    def beat(self) -> None:
        """Never fails: a job that cannot say that it lives still lives."""
        now_ms, g = int(time.time() * 1000), self._generation
        said = Heartbeat(g, this_process(), now_ms, now_ms + EXPIRES_MS)
        try:
            # A folder that was removed under the query must not come back.
            if self._records.store.exists(f"generations/{id_name(g)}"):
                self._records.store.replace(f"alive/{id_name(g)}", "alive", said.to_json(), durable=False)
        except Exception as e:  # noqa: BLE001 - whatever a file system raises
            if not self._warned:
                self._warned = True
                _log.warning("The heartbeat that keeps gc away while this query runs cannot be written: %s", e)

    def stop(self) -> None:
        """The query ended."""
        self._stopped.set()
        self._thread.join(self._every_s)
        try:
            self._records.store.delete(f"alive/{id_name(self._generation)}")
        except Exception as e:  # noqa: BLE001 - it expires
            _log.warning("The heartbeat of the ended query cannot be removed and expires in a minute: %s", e)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            self.beat()


def require_stopped(records: JobRecords, job: str, what: str, besides: int | None = None) -> None:
    """Raise ``InvalidInputError`` while a driver runs the job; ``besides`` is a generation that may."""
    deadline = time.monotonic() + _ENDING_S
    while True:
        found = [b for b in _living(records) if b.generation != besides]
        # What has just ended goes away by itself: Spark ends the process some moments after the query.
        if not any(b.process.place == this_process().place for b in found) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    refused = refuse_while_alive(what, job, found, int(time.time() * 1000))
    if isinstance(refused, Refuse):
        raise InvalidInputError(refused.reason)


def drop_dead(records: JobRecords) -> None:
    """Forget heartbeats of drivers that crashed."""
    living = {id_name(b.generation) for b in _living(records)}
    for name in records.store.names("alive"):
        if name not in living:
            records.store.delete(f"alive/{name}")


def _living(records: JobRecords) -> list[Heartbeat]:
    now_ms, here = int(time.time() * 1000), this_process().place
    beats = [_read(records, f"alive/{name}") for name in records.store.names("alive")]
    return [b for b in beats if b is not None and is_alive(b, now_ms, here, _runs(b.process))]


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
