"""One set of storage options for both libraries that reach object stores: fsspec and delta-rs.

Users write them under either library's names. What is not given is looked up by each library itself, in the same
places: environment variables, the profile of ``AWS_PROFILE``, the identity of the container or the instance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.errors import ConfigError

Options = Mapping[str, Any]


@dataclass(frozen=True)
class _Store:
    """How one kind of store is called: ``names`` is delta-rs's name to fsspec's, with ``.`` for what is nested there.

    ``also``: further spellings of delta-rs's names. ``own``: what other names of delta-rs's begin with.
    """

    schemes: frozenset[str]
    names: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()


S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})

_S3 = _Store(
    S3_SCHEMES,
    {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_endpoint_url": "endpoint_url",
        "aws_region": "client_kwargs.region_name",
        "aws_skip_signature": "anon",
    },
    {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
        "aws_token": "aws_session_token",
        "client_kwargs.endpoint_url": "aws_endpoint_url",
        "endpoint": "aws_endpoint_url",
        "aws_endpoint": "aws_endpoint_url",
        "region": "aws_region",
        "region_name": "aws_region",
        "default_region": "aws_region",
        "aws_default_region": "aws_region",
        "skip_signature": "aws_skip_signature",
        "allow_http": "aws_allow_http",
    },
    ("aws_",),
)
_GCS = _Store(
    frozenset({"gs", "gcs"}),
    {"google_service_account": "token"},
    {"service_account": "google_service_account", "google_service_account_path": "google_service_account"},
    ("google_",),
)
_AZURE = _Store(
    frozenset({"az", "abfs", "abfss", "adl"}),
    {
        "azure_storage_account_name": "account_name",
        "azure_storage_account_key": "account_key",
        "azure_storage_sas_token": "sas_token",
        "azure_storage_tenant_id": "tenant_id",
        "azure_storage_client_id": "client_id",
        "azure_storage_client_secret": "client_secret",
    },
    own=("azure_",),
)
_ELSE = _Store(frozenset())
_CLIENT = (
    "allow_http", "allow_invalid_certificates", "backoff_config.base", "backoff_config.init_backoff",
    "backoff_config.max_backoff", "connect_timeout", "http1_only", "http2_only", "max_retries",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "retry_timeout", "timeout", "user_agent",
)  # fmt: skip
"""Names of delta-rs's that are the same for all stores."""
PATIENCE: Mapping[str, str] = {"max_retries": "1000", "retry_timeout": "30s", "backoff_config.max_backoff": "5s"}
"""How long delta-rs asks again, where no job's ``spark.ckpt.retry.timeout`` says it: by time. By itself it counts ten
tries, with pauses drawn at random: a store that is away is given up after anything from one to twenty seconds."""
_STORES = (_S3, _GCS, _AZURE)

OBJECT_STORES: frozenset[str] = frozenset().union(*(store.schemes for store in _STORES))
DELTA_RS_SCHEMES = OBJECT_STORES | {"file"}


def scheme_of(url: str) -> str:
    """What stands before ``://``, ``file`` where nothing does."""
    return url.split("://", 1)[0] if "://" in url else "file"


def fsspec_options(url: str, options: Options | None) -> dict[str, Any]:
    """``options`` as keyword arguments of the fsspec file system of ``url``; what only delta-rs knows is left out.

    Raises ``ConfigError``, without values, for one that is given twice or that delta-rs could not follow.
    """
    store = _store_of(url)
    found: dict[str, Any] = {}
    for name, value in _read(store, options).items():
        if name in store.names:
            _put(found, store.names[name].split("."), _as_flag(value) if name == "aws_skip_signature" else value)
        elif not _is_delta_rs_only(store, name):
            _put(found, name.split("."), value)
    if store is _S3:
        _add_region(found)
    return found


def delta_rs_options(url: str, options: Options | None, patience_s: float | None = None) -> dict[str, str]:
    """``options`` as delta-rs wants those of the table at ``url``: flat texts, without what only fsspec knows.

    ``patience_s``: how long each request is asked again, unless an option of delta-rs's own says it. Raises as
    :func:`fsspec_options`.
    """
    store = _store_of(url)
    given = _read(store, options).items()
    found = {} if store is _ELSE else dict(PATIENCE)
    if found and patience_s is not None:
        found["retry_timeout"] = f"{round(1000 * patience_s)}ms"
    found |= {n: _as_text(v) for n, v in given if store is _ELSE or n in store.names or _is_delta_rs_only(store, n)}
    if store is _S3:
        endpoint = found.get("aws_endpoint_url") or _endpoint_of_environment()
        if endpoint and endpoint.startswith("http://"):
            found.setdefault("aws_allow_http", "true")
        if "aws_access_key_id" not in found and found.get("aws_skip_signature") != "true":
            # Where an endpoint is named, delta-rs else looks into variables and at the instance's address only.
            found.setdefault("aws_force_credential_load", "true")
        # A version is a file that is created if absent: one of two writers wins, without a table of locks elsewhere.
        found.setdefault("aws_conditional_put", "etag")
    return found


def _store_of(url: str) -> _Store:
    return next((s for s in _STORES if scheme_of(url) in s.schemes), _ELSE)


def _is_delta_rs_only(store: _Store, name: str) -> bool:
    return name in _CLIENT or name.startswith(store.own)


def _read(store: _Store, options: Options | None) -> dict[str, Any]:
    """``options`` flat, what both libraries know under delta-rs's names."""
    theirs = {fsspec: ours for ours, fsspec in store.names.items()}
    found: dict[str, Any] = {}
    for name, value in _flat(options or {}):
        low = name.lower()
        known = theirs.get(low) or store.also.get(low) or (low if _is_delta_rs_only(store, low) else name)
        if store is _S3 and low in ("profile", "aws_profile"):
            raise ConfigError(
                "Storage option profile is for fsspec only, and Delta tables would not be found by it: set AWS_PROFILE "
                "in the environment of the driver and the executors."
            )
        if found.setdefault(known, value) != value:
            raise ConfigError(
                f"Storage option {known} is given twice with different values, under two of its names (one is {name}); "
                "remove one of them."
            )
    return found


def _flat(options: Options, above: str = "") -> list[tuple[str, Any]]:
    """Only ``client_kwargs`` is looked into: what else nests is one library's own."""
    found: list[tuple[str, Any]] = []
    for name, value in options.items():
        if not above and name == "client_kwargs" and isinstance(value, Mapping):
            found += _flat(value, "client_kwargs.")
        else:
            found.append((above + name, value))
    return found


def _put(into: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, last = path
    for parent in parents:
        into = into.setdefault(parent, {})
    into[last] = value


def _add_region(found: dict[str, Any]) -> None:
    """delta-rs takes ``AWS_REGION`` from the environment, and botocore does not."""
    region = os.environ.get("AWS_REGION")
    kwargs = found.get("client_kwargs") or {}
    if region and "region_name" not in kwargs and not os.environ.get("AWS_DEFAULT_REGION"):
        found["client_kwargs"] = {**kwargs, "region_name": region}


def _endpoint_of_environment() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _as_flag(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() == "true"


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, Mapping | list) else str(value)
