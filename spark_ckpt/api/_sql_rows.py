"""What FROM of ``ckpt.sql`` has given so far: rows whose columns have names of their own. Driver only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.sql_names import is_name, whole
from spark_ckpt.plan.sql_query import Item, Select, Span, between_commas
from spark_ckpt.plan.sql_renamed import Names, renamed, with_names
from spark_ckpt.plan.sql_sub_queries import expressions_of, sub_queries

Frame = Any
"""A checkpointed DataFrame, or a static one of Spark's."""


def is_stream(frame: Frame) -> bool:
    return hasattr(type(frame), "transformSpark")


@dataclass(frozen=True)
class Called:
    """A column: what the text calls it, and what it is called in the rows. ``hidden``: only with its table in front."""

    table: str
    name: str
    column: str
    hidden: bool = False

    def is_of(self, table: str | None) -> bool:
        """Whether it is in ``table.*``, or in ``*``."""
        return not self.hidden if table is None else self.table == table


@dataclass(frozen=True)
class Rows:
    """``alias``: what sub-queries know them by. ``words``: those of the text, which no column gets as its name."""

    frame: Frame
    called: tuple[Called, ...]
    words: frozenset[str]
    alias: str = "rows_of_from"

    @classmethod
    def of(cls, frame: Frame, table: str | None, words: frozenset[str]) -> Rows:
        called = tuple(Called((table or "").lower(), name, name) for name in frame.columns)
        return cls(frame, called, words)

    @property
    def names(self) -> Names:
        return {(c.table, c.name.lower()): (self.alias, c.column) for c in self.called}

    @property
    def visible(self) -> list[str]:
        return [c.name.lower() for c in self.called if not c.hidden]

    def free(self, table: str | None, names: Iterable[str]) -> list[str]:
        """What columns of these names may be called beside those there are, each by its own name if it is free."""
        taken, found = [c.lower() for c in self.frame.columns], list[str]()
        for name in names:
            own = name if name.lower() not in taken else free(f"{table or 'other'}_{name}", [*taken, *self.words])
            found.append(own)
            taken.append(own.lower())
        return found

    def beside(self, other: Rows, but: Iterable[str] = ()) -> Rows:
        """These, where no column is called as one of ``other`` is, ``but`` those."""
        kept = {name.lower() for name in but}
        asked = [c.column for c in self.called if c.column.lower() not in kept]
        named = dict(zip(asked, other.free(self.called[0].table if self.called else None, asked), strict=True))
        return self.as_columns({old: new for old, new in named.items() if old != new})

    def as_columns(self, names: dict[str, str]) -> Rows:
        """With other names in the rows."""
        if not names:
            return self
        frame = self.frame.toDF(*[names.get(name, name) for name in self.frame.columns])
        return replace(
            self, frame=frame, called=tuple(replace(c, column=names.get(c.column, c.column)) for c in self.called)
        )

    def found(self, column: Span) -> Called:
        """The column that a name is of. Raises ``InvalidInputError`` for a field, and for none."""
        name = [token.name.lower() for token in column.tokens if token.text != "."]
        for one in self.called:
            if (name == [one.name.lower()] and not one.hidden) or name == [one.table, one.name.lower()]:
                return one
        raise InvalidInputError(f"{column.text}: expected a column, there are {self.visible}")

    def for_text(self, spans: Iterable[Span | None]) -> Frame:
        """The rows, by the name that sub-queries in ``spans`` know them by."""
        return self.frame.alias(self.alias) if any(s is not None and sub_queries(s) for s in spans) else self.frame

    def star(self, table: str | None = None) -> list[Called]:
        return sorted((c for c in self.called if c.is_of(table)), key=lambda c: not c.hidden)

    def selected(self, select: Select) -> tuple[Frame, Select]:
        """``select`` over these rows, where nothing says of which table a column is."""
        items = tuple(self._spelt(one) for item in select.items for one in self._without_star(item))
        frame = self.for_text(expressions_of(select))
        made = renamed(replace(select, items=items), self.names)
        shown = tuple(_shown(new, old) for new, old in zip(made.items, items, strict=True))
        return frame, replace(made, items=shown)

    def _spelt(self, item: Item) -> Item:
        """Without stars as arguments, ``struct(*)``."""
        whole_item, expression = (self._without_stars_inside(span) for span in (item.whole, item.expression))
        return item if whole_item is item.whole else replace(item, whole=whole_item, expression=expression)

    def _without_stars_inside(self, span: Span) -> Span:
        text, queries = span.text, sub_queries(span)
        for begin, end, table, function in reversed(stars_inside(span)):
            if any(query.start <= begin < query.end for query in queries) or (table is None and function == "count"):
                continue
            called = " AS {}" if function == "struct" else ""
            columns = [f"{quoted(c.column)}{called.format(quoted(c.name))}" for c in self.star(table)]
            text = text[: begin - span.start] + ", ".join(columns) + text[end - span.start :]
        return span if text == span.text else whole(text)

    def text(self, span: Span) -> str:
        return with_names(span, self.names).text

    def _without_star(self, item: Item) -> list[Item]:
        tokens = item.whole.tokens
        of_table = len(tokens) > 2 and tokens[1].text == "." and tokens[2].text == "*"
        star, tables = 2 if of_table else 0, {c.table for c in self.called}
        if tokens[star].text != "*" or (of_table and tokens[0].name.lower() not in tables):
            return [item]
        left_out = _excepted(item.whole, star + 1)
        if left_out is None:
            return [item]
        found = self.star(tokens[0].name.lower() if of_table else None)
        kept = [c for c in found if not {(c.name.lower(),), (c.table, c.name.lower())} & left_out]
        return [Item(whole(f"{quoted(c.column)} AS {quoted(c.name)}"), whole(quoted(c.column)), c.name) for c in kept]


def stars_inside(span: Span) -> list[tuple[int, int, str | None, str]]:
    """Where arguments are ``*`` or ``table.*``, with the table, and the function's name."""
    tokens, found, calls = span.tokens, list[tuple[int, int, str | None, str]](), [""]
    for at, token in enumerate(tokens):
        if token.text == "(":
            calls.append(tokens[at - 1].text.lower() if at and tokens[at - 1].kind == "word" else "")
        elif token.text == ")":
            calls.pop()
        elif token.text == "*" and at + 1 < len(tokens) and tokens[at + 1].text in (")", ","):
            table = tokens[at - 2] if at > 2 and tokens[at - 1].text == "." else None
            begins = tokens[at - 1 if table is None else at - 3].text in ("(", ",")
            if at and begins and len(calls) > 1:
                where = (token if table is None else table).start
                found.append((where, token.end, None if table is None else table.name.lower(), calls[-1]))
    return found


def _excepted(span: Span, at: int) -> set[tuple[str, ...]] | None:
    """The columns of ``EXCEPT (a, t.b)`` that begins at ``at``; None if something else does."""
    tokens = span.tokens[at:]
    if not tokens:
        return set()
    if not tokens[0].word("except") or len(tokens) < 4 or tokens[1].text != "(":
        return None
    return {tuple(t.name.lower() for t in one if t.text != ".") for one in between_commas(tokens[2:-1])}


def _shown(item: Item, before: Item) -> Item:
    """A column shows as the text calls it."""
    name = before.expression.tokens[-1]
    if item.alias is not None or item.expression is before.expression or not is_name(before.expression):
        return item
    return Item(whole(f"{item.whole.text} AS {name.text}"), item.expression, name.name)
