"""What storage says no to, in our words: never in those of a store's client, which may hold a key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from spark_ckpt.errors import InvalidInputError, StorageNotWritableError
from spark_ckpt.storage.retry import http_status, may_pass

_CREDENTIALS = (
    "Check the credentials in storage options or the environment: the time of temporary ones may be over. Nothing is "
    "lost: start the query again with others."
)


@contextlib.contextmanager
def writing(name: Callable[[], str]) -> Iterator[None]:
    """Raises ``StorageNotWritableError`` for what does not pass; the rest is said by whoever knows how long it was
    tried. ``name()``: what is written, as messages show it."""
    try:
        yield
    except Exception as error:
        if may_pass(error) or not (isinstance(error, OSError) or _is_no(error)):
            raise
        shown = name()
        if "://" in shown and isinstance(error, FileNotFoundError):
            raise StorageNotWritableError(
                f"Cannot write {shown}: expected a bucket (or container) that is there, found none of that name. Make"
                " it, or correct spark.ckpt.dir or the path; buckets are not made here."
            ) from None
        if "://" in shown and _is_no(error):
            raise StorageNotWritableError(
                f"Cannot write {shown}: expected credentials that may write it, found {_said(error)}. {_CREDENTIALS}"
            ) from None
        raise StorageNotWritableError(
            f"Cannot write {shown}: expected a folder this process may write,"
            f" found {type(error).__name__}: {getattr(error, 'strerror', None) or 'refused'}."
            " Check spark.ckpt.dir, or the savepoint's path, its permissions, free space and storage options; then"
            " start the query, or ask for the savepoint, again."
        ) from None


@contextlib.contextmanager
def reading(name: Callable[[], str]) -> Iterator[None]:
    """Of an object store. Raises ``InvalidInputError`` for what it says no to. ``name()`` as in :func:`writing`."""
    try:
        yield
    except Exception as error:
        if may_pass(error) or not _is_no(error):
            raise
        raise InvalidInputError(
            f"Cannot read {name()}: expected a bucket and credentials that may read it, found {_said(error)}. Check the"
            f" bucket's name. {_CREDENTIALS}"
        ) from None


def _is_no(error: BaseException) -> bool:
    """The store refused, or its client has no credentials to ask with. S3 says 400 where a token's time is over."""
    if isinstance(error, PermissionError) or http_status(error) in (400, 401, 403):
        return True
    return any(c.__name__ == "BotoCoreError" for c in type(error).__mro__)


def _said(error: BaseException) -> str:
    """By its kind, and the store's own word for it where that has one (``ExpiredToken``): not its sentence."""
    answer = getattr(error.__cause__, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    name = type(error).__name__
    return f"{name} ({code})" if isinstance(code, str) and re.fullmatch(r"\w{1,60}", code) else name
