"""What may pass is tried again: with pauses that double and vary at random, for a bounded time.

Used for everything that is read from and written to a job's folder, and by sinks. What is tried again must be safe to
do twice.
"""

from __future__ import annotations

import errno
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, StorageNotWritableError, StorageUnavailableError

_logger = logging.getLogger(__name__)
_told: set[str] = set()

_Result = TypeVar("_Result")

# A full disk is not among them: it does not pass within seconds. Nor is anything that says no, such as permissions.
_PASSING_ERRNOS = frozenset(
    {
        errno.EIO, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ESTALE, errno.ENOLCK, errno.EMFILE, errno.ENFILE,
        errno.ENOBUFS, errno.ENOMEM, errno.ETIMEDOUT, errno.EPIPE, errno.ECONNRESET, errno.ECONNREFUSED,
        errno.ECONNABORTED, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    }
)  # fmt: skip
_PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

# What clients of object stores raise when the network or the service fails; none of them need be installed.
_PASSING_NAMES = frozenset(
    {
        "ClientConnectionError", "ClientPayloadError", "ServerDisconnectedError", "EndpointConnectionError",
        "ConnectionClosedError", "ConnectTimeoutError", "ReadTimeoutError", "ResponseStreamingError",
        "IncompleteReadError", "IncompleteRead", "ServiceRequestError", "ServiceResponseError", "TransportError",
        "FSTimeoutError", "TimeoutError",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Retry:
    """How long and how often. Any process. ``timeout_s`` 0: nothing is tried again.

    The pauses are drawn between half of 1, 2, 4, ... times ``first_pause_s`` and all of it, so that many tasks that
    failed at once do not come back at once.
    """

    timeout_s: float = 30.0
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic

    def unavailable(self, what: str, error: BaseException) -> StorageUnavailableError:
        """To be raised for an ``error`` that has been tried again for long enough. ``what`` could not be done."""
        return StorageUnavailableError(
            f"{what} for {self.timeout_s:g} s ({describe(error)}). Nothing is lost: start the query again when the "
            "storage answers; a longer spark.ckpt.retry.timeout bridges longer outages."
        )

    @classmethod
    def of(cls, config: JobConfig) -> Retry:
        """As the job's settings say: never so long that a checkpoint expires over one operation."""
        return cls(min(config.retry_timeout_ms, config.timeout_ms // 2) / 1000, config.retry_first_pause_ms / 1000)

    def call(self, action: Callable[[], _Result], again: Callable[[BaseException], bool] | None = None) -> _Result:
        """``action()``, repeated while it raises what ``again`` (default: :func:`may_pass`) says yes to.

        Raises the last error when it may not pass, or when the next try would begin more than ``timeout_s`` after the
        first one did.
        """
        started, pauses = self.clock(), self.pauses()
        while True:
            try:
                return action()
            except Exception as error:
                if not (again or may_pass)(error):
                    raise
                pause = next(pauses)
                if self.clock() + pause - started > self.timeout_s:
                    raise
                _tell(error)
            self.sleep(pause)

    def pauses(self) -> Iterator[float]:
        """The pauses between tries, in seconds; as many as are asked for."""
        pause_s = self.first_pause_s
        while True:
            yield min(pause_s, self.longest_pause_s) * (0.5 + self.random() / 2)
            pause_s = min(2 * pause_s, self.longest_pause_s)


def telling(
    again: Callable[[BaseException], bool], tell: Callable[[BaseException], None]
) -> Callable[[BaseException], bool]:
    """For :meth:`Retry.call`: ``again``, which also tells of the first error that is tried again."""
    told = False

    def asked(error: BaseException) -> bool:
        nonlocal told
        if not again(error):
            return False
        if not told:
            tell(error)
        told = True
        return True

    return asked


def may_pass(error: BaseException) -> bool:
    """Whether trying again may help: the network, the service, or a device that is busy, and nothing that says no."""
    if isinstance(error, StorageUnavailableError):
        return True
    if isinstance(error, CkptError | PermissionError | FileNotFoundError | FileExistsError):
        return False
    if isinstance(error, ConnectionError | TimeoutError | InterruptedError | BlockingIOError):
        return True
    status = http_status(error)
    if status is not None:
        return status in _PASSING_STATUS
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNOS:
        return True
    return any(cls.__name__ in _PASSING_NAMES for cls in type(error).__mro__)


def is_storage_failure(error: BaseException) -> bool:
    """Whether storage did not do what it was asked for: perhaps only now, perhaps until somebody makes room."""
    return isinstance(error, OSError | StorageNotWritableError | StorageUnavailableError) or may_pass(error)


def http_status(error: BaseException) -> int | None:
    """The answer's HTTP status, where the error or what it was made of has one."""
    for name in ("status", "status_code", "code"):
        found = getattr(error, name, None)
        if isinstance(found, int | str) and str(found).isdigit():
            return int(found)
    answer = getattr(error, "response", None)  # botocore's ClientError
    found = answer.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(answer, dict) else None
    if isinstance(found, int):
        return found
    return None if error.__cause__ is None else http_status(error.__cause__)


def describe(error: BaseException) -> str:
    """``error`` for a message or a record. What clients of object stores say may hold secrets and is left out."""
    if isinstance(error, CkptError):
        return str(error)
    said = error.strerror if isinstance(error, OSError) and error.errno else None
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _tell(error: BaseException) -> None:
    """Once a process and kind of error: a storm must not fill the log."""
    told = describe(error)
    if told not in _told:
        _told.add(told)
        _logger.warning("Storage failed in a way that may pass (%s); it is asked again", told)
