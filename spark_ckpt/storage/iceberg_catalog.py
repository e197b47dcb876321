"""Iceberg tables through pyiceberg: the catalogue of ``catalog.*`` options, and what it says when it fails."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyiceberg.exceptions
import requests
import sqlalchemy as sa
from pyiceberg.catalog import load_catalog

from spark_ckpt.errors import CkptError, ConfigError, InvalidInputError, RetryableError
from spark_ckpt.redaction import redact, redact_url, secret_values
from spark_ckpt.storage.retry import Retry, may_pass, telling
from spark_ckpt.storage.sql import connections

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_OF_PYICEBERG: tuple[type[Exception], ...] = tuple(
    v for v in vars(pyiceberg.exceptions).values() if isinstance(v, type) and issubclass(v, Exception)
)
FAILURES: tuple[type[Exception], ...] = (*_OF_PYICEBERG, sa.exc.SQLAlchemyError, OSError, ValueError)
"""What pyiceberg raises: its own errors, the database's of an SQL catalogue, the network's and the storage's."""
_ANY: tuple[type[Exception], ...] = (*FAILURES, TypeError, ImportError)
_AWAY: tuple[type[Exception], ...] = (
    requests.exceptions.ConnectionError, requests.exceptions.Timeout, pyiceberg.exceptions.ServerError,
    pyiceberg.exceptions.ServiceUnavailableError,
    getattr(pyiceberg.exceptions, "TooManyRequestsError", pyiceberg.exceptions.ServerError),  # since pyiceberg 0.12
)  # fmt: skip
_REFUSED: tuple[type[Exception], ...] = (
    pyiceberg.exceptions.UnauthorizedError, pyiceberg.exceptions.OAuthError, pyiceberg.exceptions.ForbiddenError,
    pyiceberg.exceptions.AuthorizationExpiredError,
)  # fmt: skip
_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s,\"']+")
_log = logging.getLogger("spark_ckpt")

_DEFAULTS = {"pool_pre_ping": "true"}  # an SQL catalogue's server may have closed a connection that idled


class IcebergCatalog:
    """One table of a catalogue, opened by pyiceberg's own properties. Executor and driver alike; connects when used."""

    def __init__(self, what: str, name: str, properties: Mapping[str, str], table: str) -> None:
        """``what`` stands before messages (``sink 'iceberg'``). Raises ``ConfigError`` for a name without namespace."""
        self.name, self.table = name, table
        self._what = what
        self._properties = {
            k.lower(): v for k, v in properties.items()
        }  # as Spark hands them, and all of pyiceberg's are
        if any(not part for part in table.split(".")) or "." not in table:
            raise ConfigError(f"{what}: option 'table' must be namespace.table, got {table!r}")

    def __repr__(self) -> str:
        return f"Iceberg table {self.name}.{self.table}"  # never the properties: they may hold secrets

    @property
    def catalog(self) -> Catalog:
        """Kept for the life of the process: an SQL catalogue has a pool of connections, a REST one a token."""
        return _catalog(self.name, tuple(sorted({**_DEFAULTS, **self._properties}.items())))

    def load(self) -> Table:
        """The table as it is now. Raises pyiceberg's errors: see :meth:`errors`."""
        return self.catalog.load_table(self.table)

    def load_patiently(self, patience_s: float = Retry.timeout_s) -> Table:
        """:meth:`load`, asked again while the catalogue is away: for ``patience_s``. The first failure is logged."""

        def tell(error: BaseException) -> None:
            _log.warning("%r: %s; it is asked again for %g s", self, self.told(error), patience_s)

        return Retry(patience_s).call(self.load, telling(is_away, tell))

    def load_recent(self) -> Table:
        """The table as it was at most a minute ago: to read files that were in it by then. Waits and raises as
        :meth:`load_patiently`."""
        key, now = (self.name, self.table, tuple(sorted(self._properties.items()))), time.monotonic()
        at, table = _recent.get(key, (-_RECENT_S, None))
        if table is None or now - at > _RECENT_S:
            table = self.load_patiently()
            _recent[key] = (now, table)
        return table

    @contextmanager
    def errors(self, doing: str, kind: type[CkptError] = RetryableError) -> Iterator[None]:
        """pyiceberg's errors as ``kind``, in their own words but without secrets."""
        try:
            yield
        except CkptError:
            raise
        except pyiceberg.exceptions.NoSuchTableError:
            failure: CkptError = InvalidInputError(f"{self} is not there ({doing}); create or restore it")
        except ModuleNotFoundError as error:
            failure = ConfigError(f"{self._what}: the catalogue needs the package '{error.name}'; install it")
        except _ANY as error:
            failure = kind(f"{self}: {doing} failed: {self.told(error)}{_advice(error)}")
        else:
            return
        raise failure from None

    def told(self, error: BaseException) -> str:
        cause = getattr(error, "orig", None) or error  # SQLAlchemy's own text has the statement, too
        secrets = secret_values(self._properties)
        secrets += [value.partition(":")[2] for value in secrets if value.partition(":")[2]]  # of client:secret
        for value in self._properties.values():
            if redact_url(value) != value:
                secrets.append(value)
        return _BEARER.sub(r"\1***", redact(str(cause), secrets)).strip() or type(cause).__name__


def _advice(error: BaseException) -> str:
    if isinstance(error, _REFUSED):
        return ". Check catalog.credential or catalog.token, and what they may do"
    if isinstance(error, requests.exceptions.ConnectionError):
        return ". Check catalog.uri, and whether the server runs"
    return ""


def is_away(error: BaseException) -> bool:
    """Whether the catalogue, or the storage of its tables, is the problem and not what was asked of it."""
    if isinstance(error, sa.exc.DBAPIError):
        return connections.is_outage(error.orig)
    return isinstance(error, _AWAY) or may_pass(error)


_RECENT_S = 60.0
_recent: dict[object, tuple[float, Table | None]] = {}


@lru_cache(maxsize=8)
def _catalog(name: str, properties: tuple[tuple[str, str], ...]) -> Catalog:
    return load_catalog(name, **dict(properties))


def absolute(properties: Mapping[str, str]) -> dict[str, str]:
    """``properties`` (``catalog.warehouse`` and ``catalog.uri``, any case) that mean the same in every folder."""
    return {k: _absolute(k.lower(), v) for k, v in properties.items()}


def _absolute(name: str, value: str) -> str:
    if name == "catalog.warehouse" and value.strip() and "://" not in value and not value.startswith(("/", "file:")):
        return os.path.abspath(value)
    prefix = "sqlite:///"
    if name == "catalog.uri" and value.startswith(prefix) and not os.path.isabs(value[len(prefix) :]):
        file = value[len(prefix) :]
        return value if file in ("", ":memory:") else f"{prefix}{os.path.abspath(file)}"
    return value


def check_catalog(what: str, properties: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` for a catalogue that other processes do not see."""
    uri = str(properties.get("uri", ""))
    if str(properties.get("type", "")) == "in-memory" or uri in ("sqlite://", "sqlite:///:memory:"):
        raise ConfigError(
            f"{what}: an in-memory catalogue is invisible to other processes; give one with a file or a server, such "
            "as catalog.type=sql with catalog.uri=sqlite:////path/catalog.db"
        )
