"""The operations of a chain: small values that print as the code a user would write, and do it.

``apply(df)`` is the same code for a checkpointed stream and for a plain batch DataFrame, because the methods have the
same names. Only keyed operators with names of our own have a batch counterpart of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from pyspark.sql import functions as F

from tests.generated.expressions import quoted
from tests.generated.functions import behind_rename
from tests.generated.static_joins import by_key


@dataclass(frozen=True)
class Expr:
    """A Column, by SQL text."""

    sql: str
    name: str | None = None

    def __repr__(self) -> str:
        return f"F.expr({self.sql!r})" + (f".alias({self.name!r})" if self.name else "")

    def value(self) -> Any:
        return F.expr(self.sql) if self.name is None else F.expr(self.sql).alias(self.name)


@dataclass(frozen=True)
class Lit:
    """``F.lit`` of a Python value."""

    literal: Any
    name: str | None = None

    def __repr__(self) -> str:
        return f"F.lit({self.literal!r})" + (f".alias({self.name!r})" if self.name else "")

    def value(self) -> Any:
        return F.lit(self.literal) if self.name is None else F.lit(self.literal).alias(self.name)


@dataclass(frozen=True)
class Func:
    """A function of one column, by its name."""

    name: str
    column: str
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        alias = f".alias({', '.join(map(repr, self.names))})" if self.names else ""
        return f"F.{self.name}({quoted(self.column)!r}){alias}"

    def value(self) -> Any:
        made = getattr(F, self.name)(quoted(self.column))
        return made.alias(*self.names) if self.names else made


class Operation:
    """One call of a chain."""

    def apply(self, df: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Call(Operation):
    """A method that both sides have. ``args`` may hold ``Expr``, ``Lit`` and ``Func``, also within dicts."""

    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = [_shown(a) for a in self.args] + [f"{k}={_shown(v)}" for k, v in self.kwargs.items()]
        return f".{self.method}({', '.join(shown)})"

    def apply(self, df: Any) -> Any:
        kwargs = {k: _value(v) for k, v in self.kwargs.items()}
        return attrgetter(self.method)(df)(*[_value(a) for a in self.args], **kwargs)


@dataclass(frozen=True)
class Union(Operation):
    """``df.union(...)`` of the frame so far with some more operations behind the same frame."""

    operations: tuple[Operation, ...]
    method: str = "union"

    def __repr__(self) -> str:
        inner = "".join(map(repr, self.operations))
        return f".transform(lambda df: df.{self.method}(df{inner}))"

    def apply(self, df: Any) -> Any:
        return df.transform(lambda whole: getattr(whole, self.method)(applied(self.operations, whole)))


@dataclass(frozen=True)
class StaticJoin(Operation):
    """``df.join(words, ...)`` with a table of words by ``k``; ``how`` is ``cross``, too."""

    how: str

    def __repr__(self) -> str:
        on = "" if self.how == "cross" else f", F.col('k') == F.col('key'), {self.how!r}"
        return f".{'crossJoin' if self.how == 'cross' else 'join'}(words{on})"

    def apply(self, df: Any) -> Any:
        if self.how == "cross":
            return df.crossJoin(by_key(df))
        return df.join(by_key(df), F.col("k") == F.col("key"), self.how)


@dataclass(frozen=True)
class Mapped(Operation):
    """``mapInArrow`` or ``mapInPandas``. They do not take columns with a dot or a backtick in their names."""

    method: str
    func: Named
    ddl: str

    def __repr__(self) -> str:
        return f".{self.method}({self.func!r}, {self.ddl!r})"

    def apply(self, df: Any) -> Any:
        names = list(df.columns)
        plain = df.toDF(*[f"c{i}" for i in range(len(names))])
        return getattr(plain, self.method)(behind_rename(self.method, self.func.func, names), self.ddl)


@dataclass(frozen=True)
class Named:
    """A function with the name it is shown by."""

    name: str
    func: Any

    def __repr__(self) -> str:
        return self.name

    def value(self) -> Any:
        return self.func


def applied(operations: tuple[Operation, ...], df: Any) -> Any:
    for operation in operations:
        df = operation.apply(df)
    return df


def _value(argument: Any) -> Any:
    if isinstance(argument, Expr | Lit | Func | Named):
        return argument.value()
    if isinstance(argument, dict):
        return {k: _value(v) for k, v in argument.items()}
    if isinstance(argument, list):
        return [_value(v) for v in argument]
    return argument


def _shown(argument: Any) -> str:
    return repr(argument)
