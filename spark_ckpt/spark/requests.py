"""Manual requests: how a user's process asks the running job for a checkpoint or savepoint."""

from __future__ import annotations

import time
import uuid

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol.coordinator import ManualRequest
from spark_ckpt.spark.job_records import report
from spark_ckpt.storage.filesystem import normalize_url
from spark_ckpt.storage.record_store import RecordStore


def create_request(store: RecordStore, kind: str, target: str | None = None, terminal: bool = False) -> str:
    """Any process: leave a request; returns its id. The job's first source takes it up within a poll interval."""
    now_ms = int(time.time() * 1000)
    request = f"{now_ms:013d}-{uuid.uuid4().hex[:8]}"
    # Where it is relative to is known here, and not to the process that will answer.
    absolute = None if target is None else normalize_url(target)
    body = {"kind": kind, "time_ms": now_ms, "target": absolute, "terminal": terminal}
    store.create(f"requests/{request}.json", "request", body)
    return request


def open_requests(store: RecordStore) -> list[ManualRequest]:
    """All requests that were not withdrawn, oldest first; answered ones are known by their triggers."""
    found = []
    for name in store.names("requests"):
        try:
            body = store.read(f"requests/{name}", "request")
        except CorruptStorageError as damage:
            report(damage)  # whoever asked waits in vain, and asks again
            continue
        if body is not None:
            request = name.removesuffix(".json")
            found.append(ManualRequest(request, body["kind"], body["time_ms"], body["target"], body["terminal"]))
    return found


def withdraw_request(store: RecordStore, request: str) -> None:
    store.delete(f"requests/{request}.json")
