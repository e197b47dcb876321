"""Drop-in for ``transformWithState``: a user's ``StatefulProcessor``, called for all touched keys of a subtask.

Every state variable is a family of the operator (:mod:`spark_ckpt.state.processors.declared`); the operator's own
state stays empty. What a call reads is looked up for many keys together, what it changes is written at its end.

As Spark does it in a task (4.2, ``TransformWithStateInPySparkExec``): ``init``, then the keys with rows, then the
timers that the clock has reached, by time, those registered for these rows among them, then ``close``. A timer that has
fired is gone, whatever was done about it. Values with a TTL are not seen from the batch on whose time has reached their
expiry, and are removed behind it. Here ``init`` and ``close`` are called once more where a task calls for rows and for
timers, and not at all where there is nothing to call for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from spark_ckpt.state.functions.arrow_function import nullable
from spark_ckpt.state.functions.base import LISTENER, CallContext, Changed, StateFunction, Touched, nothing_in
from spark_ckpt.state.lsm.layout import FamilyLayout
from spark_ckpt.state.processors._rows import FramesForm, RowsForm
from spark_ckpt.state.processors.declared import LISTS, TIMERS, Variable, families

TIME_MODES = {"None": "NoTimeout", "ProcessingTime": "ProcessingTimeTimeout", "EventTime": "EventTimeTimeout"}


class ProcessorFunction(StateFunction):
    """``input_schema`` are the columns the processor sees, ``variables`` what its ``init`` declares. ``pandas``: it
    gets and gives DataFrames and no ``Row``s. ``options``: as of :class:`PandasStateFunction`. ``initial``: rows whose
    column ``INITIAL`` is not null are of the initial state.
    """

    state_schema = pa.schema([])

    def __init__(
        self,
        processor: Any,
        variables: tuple[Variable, ...],
        key_schema: pa.Schema,
        input_schema: pa.Schema,
        output_schema: pa.Schema,
        output_struct: str | None = None,
        time_mode: str = "None",
        pandas: bool = True,
        session_timezone: str = "UTC",
        options: dict[str, bool] | None = None,
        initial: bool = False,
        output_time: str | None = None,
    ) -> None:
        self.initial, self.output_time = initial, output_time
        self.processor, self.variables, self.pandas = processor, variables, pandas
        self.key_schema, self.input_schema, self.output_schema = key_schema, input_schema, nullable(output_schema)
        self.output_struct, self.session_timezone = output_struct, session_timezone
        self.options = dict(options or {})
        self.time_mode, self.timeout = time_mode, TIME_MODES[time_mode]
        self.kind = "transformWithStateInPandas" if pandas else "transformWithState"
        self.families: dict[str, FamilyLayout] = families(key_schema, variables, time_mode)

    def begins(self, family: str = "") -> Mapping[str, pa.Scalar] | None:
        """Of variables; what an operator keeps for itself stays as it is."""
        if not family:
            return {}
        return None if family in (TIMERS, LISTS) else nothing_in(self.families[family].value_schema)

    @property
    def ends_between_rows(self) -> bool:
        return self.timeout == "EventTimeTimeout"

    @property
    def listens(self) -> bool:
        return hasattr(self.processor, LISTENER)

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        getattr(self.processor, LISTENER)(checkpoint)

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        from spark_ckpt.state.processors._call import ProcessorCall

        output = ProcessorCall(self, ctx, touched).run()
        nothing = touched.exists & False
        return Changed(output, touched.state, nothing, nothing, touched.timeout_ms)

    @cached_property
    def form(self) -> FramesForm | RowsForm:
        return FramesForm(self) if self.pandas else RowsForm(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "form"}
