"""One database: transactions that are tried again, and errors without secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

import sqlalchemy as sa

from spark_ckpt.errors import BadRowError, CkptError, ConfigError, InvalidInputError, RetryableError
from spark_ckpt.redaction import redact, secret_values
from spark_ckpt.storage.retry import Retry, telling
from spark_ckpt.storage.sql import connections, mariadb
from spark_ckpt.storage.sql._messages import said
from spark_ckpt.storage.sql.bad_rows import is_about_row, rule_of

_T = TypeVar("_T")
_TRIES = 8
_RETRY = Retry(first_pause_s=0.1)
_LONGEST_WAIT_MS = 10_000
_log = logging.getLogger("spark_ckpt")


class Database:
    """Made from a URL; ``what`` (``sink 'sql'``) begins messages about it.

    Connects when first used, and holds a connection only inside a transaction. Locks that others hold are waited for
    ``lock_timeout_ms`` in all, in tries of which each that fails is logged. ``error_values``: whether errors may quote
    values of rows.
    """

    def __init__(
        self, what: str, url: sa.URL, lock_timeout_ms: int, reading: bool = False, error_values: bool = False
    ) -> None:
        self._what, self._reading, self._error_values = what, reading, error_values
        self._url = url
        self._lock_timeout_ms = lock_timeout_ms
        # Whole seconds, because MariaDB counts in them; at least a second, or a busy SQLite file would fill the log.
        self._lock_wait_ms = min(max(lock_timeout_ms // 4000, 1) * 1000, _LONGEST_WAIT_MS)

    def __repr__(self) -> str:
        return self.redacted(self._url.set(query={}).render_as_string(hide_password=True))

    @property
    def backend(self) -> str:
        """What SQLAlchemy calls databases of its kind: sqlite, postgresql, mariadb, mysql."""
        return self._url.get_backend_name()

    @property
    def identity(self) -> str:
        """The same for the same database and user. It holds the password."""
        return self._url.render_as_string(hide_password=False)

    @property
    def has_nan(self) -> bool:
        """Whether a floating column can hold NaN; otherwise it becomes null."""
        return self.backend not in ("sqlite", *mariadb.DIALECTS)

    @cached_property
    def engine(self) -> sa.Engine:
        with self._parameters():
            return connections.connect_engine(self._what, self._url, self._lock_wait_ms, self._reading)

    def check(self) -> None:
        """Connect once. Raises ``ConfigError`` for a parameter in the URL that the driver does not take."""
        with self._parameters():
            self.engine.connect().close()

    @contextmanager
    def _parameters(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError) as error:
            found = f"{self._what}: option 'url' has a parameter that {self._url.drivername} refuses"
            raise ConfigError(f"{found}: {self.redacted(str(error))}") from None

    def transaction(
        self, work: Callable[[sa.Connection], _T], again_on: tuple[type[sa.exc.DBAPIError], ...] = ()
    ) -> _T:
        """Run ``work`` in one transaction; again if the database asks for it, and once if ``again_on`` is met."""
        pauses, met, tries, waited_ms = _RETRY.pauses(), 0, 0, 0
        while True:
            try:
                with self.engine.begin() as connection:
                    return work(connection)
            except (sa.exc.DBAPIError, self._driver_error()) as error:
                cause = _cause(error)
                if connections.is_lock_timeout(cause):
                    waited_ms += self._lock_wait_ms
                    if waited_ms >= self._lock_timeout_ms:
                        raise
                    self._log_wait(waited_ms)
                else:
                    tries += 1
                    met += isinstance(error, again_on)
                    again = connections.is_transient(cause) or (isinstance(error, again_on) and met == 1)
                    if not again or tries == _TRIES:
                        raise
            _RETRY.sleep(next(pauses))

    def patiently(self, action: Callable[[], _T], patience_s: float) -> _T:
        """``action()``, again with pauses that grow and vary while the database's server is away, for ``patience_s``.

        Whether it was done when its answer was lost is for ``action`` to find out. The first failure is logged.
        """

        def tell(error: BaseException) -> None:
            text = self.redacted(said(_cause(error)))
            _log.warning("%r: %s; it is asked again for %g s", self, text, patience_s)

        return Retry(patience_s, _RETRY.first_pause_s).call(action, telling(self._is_away, tell))

    def _is_away(self, error: BaseException) -> bool:
        """Locks were waited for already. A file has no server: what is said of it (a full disk) does not pass."""
        if not isinstance(error, sa.exc.DBAPIError | self._driver_error()):
            return False
        cause, is_file = _cause(error), self.backend == "sqlite"
        return not is_file and connections.is_outage(cause) and not connections.is_lock_timeout(cause)

    def _log_wait(self, waited_ms: int) -> None:
        _log.warning(
            "%r: waited %.0f s for a lock that another session holds; trying again until %.0f s are over (lockTimeout)",
            self, waited_ms / 1000, self._lock_timeout_ms / 1000,
        )  # fmt: skip

    @contextmanager
    def errors(
        self,
        doing: str | Callable[[], str],
        outage: type[CkptError] = RetryableError,
        more: Callable[[BaseException], str] | None = None,
    ) -> Iterator[None]:
        """Database errors as ours: ``outage`` if the database was the problem, else ``InvalidInputError``.

        One about a row's content is a ``BadRowError``. Their text is the database's, without secrets; the original is
        not shown with them. ``doing``, if it is called, is called when it failed, and ``more`` with the error if it was
        not the database.
        """
        drivers: tuple[type[BaseException], ...] = (sa.exc.SQLAlchemyError, self._driver_error())
        try:
            yield
        except drivers as error:
            failure = self._failure(_cause(error), doing if isinstance(doing, str) else doing(), outage, more)
        else:
            return
        raise failure from None

    def _failure(
        self, cause: BaseException, doing: str, outage: type[CkptError], more: Callable[[BaseException], str] | None
    ) -> CkptError:
        told = f"{doing} failed: {self.redacted(said(cause, self._error_values))}"
        if connections.is_outage(cause):
            return outage(f"{told}{self._advice(cause)}")
        told += "" if more is None else more(cause)
        return _bad_row(told, cause) if is_about_row(cause) else InvalidInputError(told)

    def bad_row(self, error: BaseException, more: str) -> BadRowError:
        """What the database said of a row; ``more`` stands behind it."""
        cause = _cause(error)
        return _bad_row(f"{self.redacted(said(cause, self._error_values))}{more}", cause)

    def _advice(self, cause: BaseException) -> str:
        if not connections.is_lock_timeout(cause):
            return ""
        return (
            f". Another session held the lock for {self._lock_timeout_ms / 1000:g} s (option lockTimeout). End that "
            f"session{connections.who_waits(self.backend)} and start the query again; nothing is lost"
        )

    def redacted(self, text: str) -> str:
        """``text`` without the URL's password and what its query string keeps secret."""
        given = [("password", self._url.password), *self._url.normalized_query.items()]
        values = [(k, v) for k, found in given for v in ((found,) if isinstance(found, str | None) else found)]
        return redact(text, [secret for pair in values for secret in secret_values(dict([pair]))])

    def _driver_error(self) -> type[BaseException]:
        dbapi = self.engine.dialect.dbapi
        error: type[BaseException] = sa.exc.SQLAlchemyError if dbapi is None else dbapi.Error
        return error


def _bad_row(text: str, cause: BaseException) -> BadRowError:
    error = BadRowError(text)
    error.rule = rule_of(cause)
    return error


def _cause(error: BaseException) -> BaseException:
    """The driver's own error."""
    return getattr(error, "orig", None) or error
