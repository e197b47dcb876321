"""What storage says no to, in our words: never in those of a store's client, which may hold a key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from spark_ckpt.errors import InvalidInputError, StorageNotWritableError
from spark_ckpt.storage.retry import may_pass


@contextlib.contextmanager
def writing(shown: str) -> Iterator[None]:
    """Raises ``StorageNotWritableError`` for what does not pass; the rest is said by whoever knows how long it was
    tried."""
    try:
        yield
    except Exception as error:
        if may_pass(error) or not (isinstance(error, OSError) or _is_no(error)):
            raise
        if "://" in shown and isinstance(error, FileNotFoundError):
            raise StorageNotWritableError(
                f"Cannot write {shown}: expected a bucket (or container) that is there, found none of that name. Make"
                " it, or correct spark.ckpt.dir or the path; buckets are not made here."
            ) from None
        raise StorageNotWritableError(
            f"Cannot write {shown}: expected a folder this process may write,"
            f" found {type(error).__name__}: {getattr(error, 'strerror', None) or 'refused'}."
            f" Check spark.ckpt.dir, its permissions, free space and storage options, and start the query again."
        ) from None


@contextlib.contextmanager
def reading(shown: str) -> Iterator[None]:
    """Of an object store. Raises ``InvalidInputError`` for what it says no to."""
    try:
        yield
    except Exception as error:
        if may_pass(error) or not _is_no(error):
            raise
        raise InvalidInputError(
            f"Cannot read {shown}: expected a bucket and credentials that may read it, found {type(error).__name__}."
            " Check the bucket's name, and the credentials in storage options or the environment."
        ) from None


def _is_no(error: BaseException) -> bool:
    """The store refused, or its client has no credentials to ask with."""
    return isinstance(error, PermissionError) or any(c.__name__ == "BotoCoreError" for c in type(error).__mro__)
