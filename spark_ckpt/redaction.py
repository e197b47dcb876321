"""What must not reach a message, a log or a record: one rule for secrets, wherever a text may hold one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from spark_ckpt.errors import writable

_NAMES = (
    "pass", "pwd", "secret", "token", "key", "sig", "credential", "jaas", "connection_string", "odbc_connect",
    "authorization",
)  # fmt: skip
_USER = re.compile(r"(?<!\w)(?!(?:abfss?|wasbs?)://)([a-z][\w+.-]*://)[^/@:\s?#]*@", re.IGNORECASE)
_PASSWORD = re.compile(r"(://[^/@:\s?#]*):[^/\s?#]*@")
_PARAMETER = re.compile(rf"(?i)([?&;][^=&;\s]*(?:{'|'.join(_NAMES)})[^=&;\s]*=)[^&;\s]*")
_BACKTRACE = re.compile(r"\n\s+0: (?:<unknown>|[\w<>:]+::|\w+\n\s+at ).*", re.DOTALL)
_BRANCH = re.compile(r"\s*\x1b\[\d+m↳\x1b\[0m\s*")


def redact_url(text: str) -> str:
    """``text``, writable, without what URLs in it keep secret: passwords, sole users (often tokens), secret parameters.

    In ``abfs`` what stands there is the container, and stays.
    """
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", _USER.sub(r"\1***@", writable(text))))


def has_secret(url: str) -> bool:
    """Whether ``url`` holds a password or a secret parameter."""
    return bool(_PASSWORD.search(url) or _PARAMETER.search(url))


def secret_values(options: Mapping[str, Any]) -> list[str]:
    """The values whose names say that they are secrets."""
    found = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            found += secret_values(value)
        elif value and any(word in name.lower() for word in _NAMES):
            found.append(str(value))
    return found


def redact(text: str, secrets: Iterable[str]) -> str:
    """``text`` without ``secrets``, plain or as a URL quotes them, and without those in URLs.

    delta-rs's errors, which are trees in a terminal's colours and may have a backtrace, come out as the one line that
    they were made of.
    """
    text = _BACKTRACE.sub("", _BRANCH.sub(": ", text)).rstrip("\n")
    for secret in secrets:
        for form in (secret, quote(secret, safe=""), quote_plus(secret)):
            text = text.replace(form, "***")
    return redact_url(text)
