"""One database of the ``sql`` sink: transactions that are tried again, and errors without secrets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

import sqlalchemy as sa

from spark_ckpt.errors import CkptError, InvalidInputError, RetryableError
from spark_ckpt.sinks import sql_dialects
from spark_ckpt.sinks.options import redact, secret_values

_T = TypeVar("_T")
_TRIES = 8
_FIRST_PAUSE_S = 0.05


class Database:
    """Made from a URL; connects when first used, and holds a connection only inside a transaction."""

    def __init__(self, url: sa.URL) -> None:
        self._url = url

    def __repr__(self) -> str:
        return self.redacted(self._url.render_as_string(hide_password=True))

    @cached_property
    def engine(self) -> sa.Engine:
        return sql_dialects.connect_engine(self._url)

    def transaction(
        self, work: Callable[[sa.Connection], _T], again_on: tuple[type[sa.exc.DBAPIError], ...] = ()
    ) -> _T:
        """Run ``work`` in one transaction; again if the database asks for it, and once if ``again_on`` is met."""
        pause_s, met, tries = _FIRST_PAUSE_S, 0, 0
        while True:
            try:
                with self.engine.begin() as connection:
                    return work(connection)
            except sa.exc.DBAPIError as error:
                tries += 1
                met += isinstance(error, again_on)
                again = sql_dialects.is_transient(error.orig) or (isinstance(error, again_on) and met == 1)
                if not again or tries == _TRIES:
                    raise
            time.sleep(pause_s)
            pause_s *= 2

    @contextmanager
    def errors(self, doing: str, outage: type[CkptError] = RetryableError) -> Iterator[None]:
        """Database errors as ours: ``outage`` if the database was the problem, else ``InvalidInputError``.

        Their text is the database's, without secrets; the original is not shown with them.
        """
        drivers: tuple[type[BaseException], ...] = (sa.exc.SQLAlchemyError, self._driver_error())
        try:
            yield
        except drivers as error:
            cause = getattr(error, "orig", None) or error
            kind = outage if sql_dialects.is_outage(cause) else InvalidInputError
            failure = kind(f"{doing} failed: {self.redacted(str(cause)).strip()}")
        else:
            return
        raise failure from None

    def redacted(self, text: str) -> str:
        query = {k: v if isinstance(v, str) else v[0] for k, v in self._url.query.items()}
        return redact(text, secret_values({**query, "password": self._url.password}))

    def _driver_error(self) -> type[BaseException]:
        dbapi = self.engine.dialect.dbapi
        error: type[BaseException] = sa.exc.SQLAlchemyError if dbapi is None else dbapi.Error
        return error
