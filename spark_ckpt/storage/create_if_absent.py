"""Whether a store can create an object only if there is none: what one winner among several drivers rests on."""

from __future__ import annotations

import uuid

from spark_ckpt.errors import StorageNotWritableError
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.retry import may_pass


def require_create_if_absent(folder: Folder) -> None:
    """Raise ``StorageNotWritableError`` if two writers of one name would both be told that they created it, and
    ``StorageUnavailableError`` if the store does not answer.

    Driver, when a query starts. Costs three requests on an object store, nothing on local folders, which have links.
    """
    if folder.local:
        return
    probe = f"probe-{uuid.uuid4().hex}"
    try:
        once = folder.create(probe, b"1") and not folder.create(probe, b"2")
        folder.remove(probe)
    except (NotImplementedError, TypeError, ValueError):  # how fsspec's file systems say that they cannot
        once = False
    except Exception as error:
        if may_pass(error):
            raise folder.retry.unavailable(f"{folder.shown(probe)} could not be written", error) from None
        raise
    if not once:
        raise StorageNotWritableError(
            f"Cannot keep checkpoints at {folder.shown('').rstrip('/')}: expected a store that creates an object"
            " only if there is none (on S3 a conditional put, If-None-Match; MinIO of August 2024 or newer), found one"
            " that does not, or whose client cannot ask for it. Two drivers of one job would both win there. Use"
            " another store, or a newer version of it and of its fsspec package."
        )
