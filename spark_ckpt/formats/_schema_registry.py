"""A Confluent schema registry over HTTP, and the wire format that names a schema in front of each record."""

from __future__ import annotations

import base64
import functools
import json
import logging
import random
import struct
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from http.client import HTTPException
from urllib.parse import quote

from spark_ckpt.errors import InvalidInputError, RetryableError
from spark_ckpt.redaction import redact

_logger = logging.getLogger(__name__)
_TYPE = "application/vnd.schemaregistry.v1+json"
_ONE_REQUEST_S = 10.0
_MOST_BYTES = 64 << 20
"""Of an answer. No schema is longer."""
_PASSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_HEAD = struct.Struct(">bI")


@dataclass(frozen=True)
class Reference:
    """What a schema imports by ``name``: a version of another subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Registered:
    """A schema as it is registered; ``kind`` is AVRO or PROTOBUF."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()

    def body(self) -> bytes:
        if self.kind == "AVRO":  # which every registry takes for granted, those that know nothing else, too
            return json.dumps({"schema": self.text}).encode()
        references = [asdict(reference) for reference in self.references]
        return json.dumps({"schemaType": self.kind, "schema": self.text, "references": references}).encode()


@dataclass(frozen=True)
class SchemaRegistry:
    """Any process; picklable. What it told once is not asked again by this process: schemas never change."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0

    def schema(self, schema_id: int) -> str:
        """The text of a schema. Raises ``ValueError`` if there is none of that id, ``RetryableError`` if the registry
        is away for longer than ``timeout_s``, ``InvalidInputError`` if it refuses."""
        return _schema(self, schema_id)

    def latest(self, subject: str) -> str:
        """The text of the newest schema of ``subject``. Raises as :meth:`schema`."""
        return str(self._asked(f"/subjects/{quote(subject, safe='')}/versions/latest", "schema"))

    def register(self, subject: str, schema: Registered) -> int:
        """The id of ``schema``, which is registered if it is not yet. Raises as :meth:`schema`."""
        return int(self._asked(f"/subjects/{quote(subject, safe='')}/versions", "id", schema.body()))

    def version(self, subject: str, schema: Registered) -> int:
        """Which version of ``subject`` a registered ``schema`` is. Raises as :meth:`schema`."""
        return int(self._asked(f"/subjects/{quote(subject, safe='')}", "version", schema.body()))

    def _asked(self, path: str, wanted: str, body: bytes | None = None) -> str | int:
        """The field ``wanted`` of what it answers."""
        until, pause, told = time.monotonic() + self.timeout_s, 0.1, False
        while True:
            try:
                with urllib.request.urlopen(self._request(path, body), timeout=_ONE_REQUEST_S) as answer:
                    found = said(answer.read(_MOST_BYTES + 1), wanted)
                if found is not None:
                    return found
                problem = f"an answer without {wanted!r}"
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in _PASSES:
                        raise self._refusal(path, error) from None
                    problem = f"HTTP {error.code}"
            except (OSError, HTTPException, ValueError) as error:
                problem = str(error)
            if time.monotonic() + pause > until:
                raise RetryableError(
                    f"expected the schema registry at {self._shown(self.url)} to answer within {self.timeout_s:g} s, "
                    f"found {self._shown(problem)}; nothing is lost: start the query again when it is up"
                )
            if not told:
                _logger.warning("schema registry at %s: %s; asking again", self._shown(self.url), self._shown(problem))
                told = True
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, 5.0)

    def _request(self, path: str, body: bytes | None) -> urllib.request.Request:
        if not self.url.lower().startswith(("http://", "https://")):
            raise InvalidInputError(
                f"option 'schemaRegistryUrl': expected a URL of http or https, found {self._shown(self.url)}"
            )
        headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if self.user is not None:
            pair = f"{self.user}:{self.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return urllib.request.Request(self.url.rstrip("/") + path, body, headers)

    def _refusal(self, path: str, error: urllib.error.HTTPError) -> Exception:
        if error.code == 404:
            return ValueError(f"the schema registry has no {path}")
        text = self._shown(error.read(300).decode(errors="replace"))
        return InvalidInputError(
            f"the schema registry at {self._shown(self.url)} refused {path} with HTTP {error.code}: {text}; correct "
            "schemaRegistryUser, schemaRegistryPassword, or the schema"
        )

    def _shown(self, text: str) -> str:
        return redact(text, [self.password] if self.password else [])


@functools.lru_cache(maxsize=1024)
def _schema(registry: SchemaRegistry, schema_id: int) -> str:
    return str(registry._asked(f"/schemas/ids/{schema_id}", "schema"))


def said(answer: bytes, wanted: str) -> str | int | None:
    """The field ``wanted`` of a registry's answer, a text or, of ids and versions, a number; None if it has none."""
    try:
        found = json.loads(answer) if len(answer) <= _MOST_BYTES else None
    except (ValueError, RecursionError):  # lists within lists, thousands deep
        return None
    value = found.get(wanted) if isinstance(found, dict) else None
    kind = str if wanted == "schema" else int
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def unwrapped(record: bytes) -> tuple[int, bytes]:
    """The id of its schema, and the record itself. Raises ``ValueError`` if it is not in that format."""
    if len(record) < _HEAD.size or record[0] != 0:
        raise ValueError(f"expected a byte 0 and the id of a schema in front, found {record[:5]!r}")
    return _HEAD.unpack_from(record)[1], record[_HEAD.size :]


def wrapped(schema_id: int, record: bytes) -> bytes:
    return _HEAD.pack(0, schema_id) + record
