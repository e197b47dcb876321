"""What ``ckpt.sql`` takes beside queries: ``CREATE TEMPORARY VIEW``. Other commands reach Spark in no case. Driver."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.sql_query import Span
from spark_ckpt.plan.sql_tokens import Token

_QUERIES = ("select", "with", "from", "table", "values")


@dataclass(frozen=True)
class CreateView:
    """``CREATE [OR REPLACE] [GLOBAL] TEMPORARY VIEW name [(columns)] AS query``."""

    name: str
    columns: tuple[str, ...]
    query: str
    replace: bool
    is_global: bool

    def of(self, rows: Any) -> None:
        """Raises as ``createTempView`` does."""
        rows = rows.toDF(*self.columns) if self.columns else rows
        kind = "GlobalTempView" if self.is_global else "TempView"
        getattr(rows, f"{'createOrReplace' if self.replace else 'create'}{kind}")(self.name)


def command_of(span: Span) -> CreateView | None:
    """None: it is a query. Raises ``InvalidInputError`` for other commands: Spark runs such a text when it reads it."""
    tokens = span.tokens
    writes = any(
        one.word("insert") and one.depth == 0 and behind.word("into", "overwrite") for one, behind in pairwise(tokens)
    )
    if not writes and (tokens[0].text == "(" or tokens[0].word(*_QUERIES)):
        return None
    made = _created(span, list(tokens)) if tokens[0].word("create") else None
    if made is None or writes:
        raise InvalidInputError(
            f"ckpt.sql takes one query, or CREATE [OR REPLACE] TEMPORARY VIEW ... AS of one, found {tokens[0].text}: "
            "other commands are ckpt.spark.sql's; to write a stream, writeStream of the query"
        )
    return made


def _created(span: Span, tokens: list[Token]) -> CreateView | None:
    rest = tokens[1:]

    def taken(*words: str) -> bool:
        found = len(rest) > len(words) and all(t.word(w) for t, w in zip(rest, words, strict=False))
        del rest[: len(words) if found else 0]
        return found

    replace, is_global = taken("or", "replace"), taken("global")
    if not (taken("temp") or taken("temporary")) or not taken("view") or not rest[0].is_name:
        return None
    name, columns = rest.pop(0).name, list[str]()
    if rest and rest[0].text == "(":
        end = next(at for at, token in enumerate(rest) if token.text == ")" and token.depth == rest[0].depth)
        columns = [token.name for token in rest[1:end] if token.text != ","]
        del rest[: end + 1]
    if not taken("as"):
        return None
    return CreateView(name, tuple(columns), span.piece(tuple(rest)).text, replace, is_global)
