"""The folder that a savepoint is written to: it must be empty, and is claimed before anything is copied there. Driver.

``claim.json``, created if absent, says which savepoint the folder is for. So of two jobs that write into one folder at
the same time one gets an error and writes nothing, and what a killed copy left is known from somebody else's files.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.faults import reach
from spark_ckpt.protocol import codec
from spark_ckpt.protocol.codec import optional
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage.filesystem import normalize_url
from spark_ckpt.storage.job_paths import CLAIM_RECORD, SAVEPOINT_RECORD
from spark_ckpt.storage.record_store import Exists, RecordStore
from spark_ckpt.storage.retry import may_pass

_KIND = "claim"
_SHOWN = 5


@dataclass(frozen=True)
class SavepointMark:
    """Which savepoint it is. With the job's life: one whose folder was removed counts its checkpoints from 1 again."""

    job: str
    life: str
    checkpoint: int
    disposing: bool = optional(False)
    """It is being removed: what is left is no savepoint."""

    @classmethod
    def of(cls, job: str, record: CompletionRecord) -> SavepointMark:
        return cls(job, record.life, record.checkpoint)

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint} of job {self.job!r}"


def require_free(store: RecordStore, job_url: str | None = None) -> None:
    """Raise ``InvalidInputError`` unless a savepoint can be written to the folder of ``store``: it must be empty, or
    not be there yet.

    ``job_url``: the folder of the job that asks. A savepoint in there would be taken for the job's own files, and go
    with them. Also raises what storage raises.
    """
    if job_url is not None and f"{store.url}/".startswith(f"{normalize_url(job_url)}/"):
        raise InvalidInputError(
            f"{redact_url(store.url)} is inside the job's own folder: expected a folder outside of it for the savepoint"
        )
    if store.exists(SAVEPOINT_RECORD):
        raise _taken(store, "already holds another savepoint")
    claimed = read_claim(store)
    if claimed is not None:
        raise _taken(store, f"holds an unfinished savepoint, {claimed} ('spark-ckpt dispose' removes it)")
    _require_empty(store)


def claim(store: RecordStore, mark: SavepointMark, job_url: str | None = None) -> None:
    """Make the folder of ``store`` that of the savepoint ``mark``; nothing changes if it is. Raises
    ``InvalidInputError`` if it is not free."""
    if read_claim(store) == mark:
        return
    require_free(store, job_url)
    reach("target is free")
    # What appears here between the look and the claim is no savepoint's: every one begins with a claim.
    made = store.create(CLAIM_RECORD, _KIND, codec.write(mark))
    if isinstance(made, Exists) and codec.read(SavepointMark, made.body, CLAIM_RECORD) != mark:
        raise _taken(store, "was taken by another savepoint at the same time")


def read_claim(store: RecordStore) -> SavepointMark | None:
    body = store.read(CLAIM_RECORD, _KIND)
    return None if body is None else codec.read(SavepointMark, body, CLAIM_RECORD)


def replace_claim(store: RecordStore, mark: SavepointMark) -> None:
    store.replace(CLAIM_RECORD, _KIND, codec.write(mark))


def _require_empty(store: RecordStore) -> None:
    folder = store.folder
    try:
        found = [*(f"{n}/" for n in folder.folders()), *folder.names()]
    except NotADirectoryError:
        raise _taken(store, "is a file, or below one") from None
    except Exception as error:
        if may_pass(error):
            raise folder.retry.unavailable(f"{folder.shown('')} could not be read", error) from None
        raise
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise _taken(store, f"holds {', '.join(found[:_SHOWN])}{more}")


def _taken(store: RecordStore, how: str) -> InvalidInputError:
    return InvalidInputError(f"{redact_url(store.url)} {how}; choose an empty folder for the savepoint")
