"""Calls of aggregate functions, whoever found them, and the form in which each is kept. Driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T

from spark_ckpt.plan._aggregate_kinds import KINDS, LISTED, OF_ONE_OF_TWO, PAIRED
from spark_ckpt.plan._carried_values import in_form
from spark_ckpt.plan._forms import Form, within_structs

Tree = Any


@dataclass(frozen=True)
class Call:
    """An aggregate function in an expression. ``arguments`` are trees; ``only`` is the condition of its FILTER.

    ``form`` says what is kept of the arguments and shown of that, where these are not the values themselves."""

    function: str
    arguments: Sequence[Tree]
    options: dict[str, Any] = field(default_factory=dict)
    distinct: bool = False
    only: Tree | None = None
    form: Form | None = None

    @property
    def kind(self) -> str | None:
        """What computes it; None: nothing here."""
        return self.form.kind if self.form is not None and self.form.kind else KINDS.get(self.function)

    @property
    def shown(self) -> Callable[[Column], Column] | None:
        return None if self.form is None else self.form.shown

    @property
    def is_computed(self) -> bool:
        """Whether what is kept is surely no column of the DataFrame."""
        return self.function == "count_if" or (self.form is not None and self.form.is_computed)

    @property
    def is_carried(self) -> bool:
        return self.form is not None and any(kind is not None for kind in self.form.carried)

    def expected(self, kind: str) -> int:
        """How many arguments there have to be."""
        if kind in PAIRED or self.function in OF_ONE_OF_TWO:
            return 2
        own = self.form is not None and self.form.kept is not None
        return len(self.arguments) if KINDS[self.function] == "count" or own else 1


def formed(call: Call, type_of: Callable[[Tree], T.DataType]) -> Call:
    """A first value that may be null differs from a row that FILTER left out: it is kept within a struct."""
    kind = KINDS.get(call.function)
    if call.only is not None and kind in ("first", "last") and not call.options.get("ignore_nulls"):
        call = replace(call, options={"ignore_nulls": True}, form=within_structs())
    if kind is None or not call.arguments or call.function in LISTED:
        return call
    return replace(call, form=in_form(kind, call.options, list(map(type_of, call.arguments)), call.form))
