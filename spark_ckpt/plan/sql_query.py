"""What a SQL query is cut into: pieces of its text, by clause. Driver, no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from spark_ckpt.plan.sql_tokens import Token


@dataclass(frozen=True)
class Span:
    """A piece of the text."""

    tokens: tuple[Token, ...]
    text: str

    def piece(self, tokens: tuple[Token, ...]) -> Span:
        """Some of its tokens, which follow each other."""
        return Span(tokens, self.text[tokens[0].start - self.start : tokens[-1].end - self.start])

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end


@dataclass(frozen=True)
class Item:
    """``whole`` of the SELECT list is ``expression`` with its ``alias`` behind it, if it has one."""

    whole: Span
    expression: Span
    alias: str | None


@dataclass(frozen=True)
class Ordering:
    expression: Span
    descending: bool
    nulls_first: bool | None


@dataclass(frozen=True)
class Source:
    """What stands in FROM: a name or a function of tables, whose text is ``span``, or the sub-query ``inner``."""

    span: Span
    name: str | None
    inner: Span | None
    alias: str | None
    columns: tuple[str, ...] = ()
    """Names behind the alias."""
    sample: Span | None = None
    """What stands behind TABLESAMPLE, in parentheses."""


KEEPS_RIGHT = ("right", "full")
"""Joins that have rows of the right side without any of the left."""


@dataclass(frozen=True)
class Join:
    source: Source
    how: str
    on: Span | None
    using: tuple[str, ...]
    natural: bool = False


@dataclass(frozen=True)
class View:
    """``LATERAL VIEW generator alias AS names``, or ``JOIN LATERAL generator AS alias(names) ON on``."""

    generator: Span
    outer: bool
    alias: str | None
    names: tuple[str, ...]
    on: Span | None = None


@dataclass(frozen=True)
class Lateral:
    """``JOIN LATERAL (query) AS alias(names) ON on``; ``how``: inner or left."""

    query: Span
    how: str
    alias: str | None
    names: tuple[str, ...]
    on: Span | None


@dataclass(frozen=True)
class Unpivot:
    """``UNPIVOT [INCLUDE NULLS] (values FOR name IN (sets)) alias``: each set has a column for each of ``values``, and
    what it is called in ``name``."""

    values: tuple[str, ...]
    name: str
    sets: tuple[tuple[tuple[Span, ...], str], ...]
    nulls: bool
    alias: str | None


@dataclass(frozen=True)
class Pivot:
    """``PIVOT (results FOR columns IN (values)) alias``, where ``inside`` is in the parentheses."""

    inside: Span
    results: tuple[Item, ...]
    columns: tuple[Span, ...]
    values: tuple[Item, ...]
    alias: str | None


Step = Join | View | Lateral | Unpivot | Pivot
"""What FROM joins with what stands in front."""


@dataclass(frozen=True)
class Grouping:
    """``sets``: ``cube``, ``rollup`` or ``grouping sets``; of those the places of each set's keys."""

    keys: tuple[Span, ...]
    sets: str = ""
    places: tuple[tuple[int, ...], ...] = ()
    all_items: bool = False


@dataclass(frozen=True)
class Select:
    span: Span
    items: tuple[Item, ...]
    distinct: bool
    source: Source
    steps: tuple[Step, ...]
    where: Span | None
    grouping: Grouping | None
    having: Span | None


@dataclass(frozen=True)
class Named:
    """What WITH gives a name, and its columns theirs, if they are not empty. ``recursive``: it reads itself."""

    name: str
    query: Span
    columns: tuple[str, ...]
    recursive: bool = False


@dataclass(frozen=True)
class Query:
    """``parts`` of a union, or what is taken off, by ``operations``; ``distinct`` says of each but the first whether
    rows that were there are left out."""

    span: Span
    named: tuple[Named, ...]
    parts: tuple[Select | Query, ...]
    distinct: tuple[bool, ...] = ()
    order: tuple[Ordering, ...] = ()
    limit: int | None = None
    operations: tuple[str, ...] = ()


def between_commas(tokens: tuple[Token, ...]) -> list[tuple[Token, ...]]:
    """What stands between the commas that are in no parentheses of their own."""
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == "," and token.depth == tokens[0].depth:
            found.append([])
        else:
            found[-1].append(token)
    return [tuple(one) for one in found]


def words(span: Span) -> tuple[str, ...]:
    """What tells whether two expressions are written alike: case does not, but in texts."""
    return tuple(t.text if t.kind == "string" else t.name.lower() for t in span.tokens)
