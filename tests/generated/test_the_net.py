"""The net itself: what is broken is seen and shown in a chain a person can read; what is refused is told a way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_ckpt.plan.analysed.translate import HANDLERS
from tests.generated.bundles import blamed, check_chains, rows_of
from tests.generated.chains import APPEND, Chain, Maker
from tests.generated.lab import Lab
from tests.generated.operations import Call, Lit, Operation, applied
from tests.generated.refused import FORMS, Refused
from tests.generated.shrink import shrunk
from tests.generated.two_sides import said
from tests.generated.values import COLUMNS, write_batches


def chain_of(*operations: Operation, number: int = 0) -> Chain:
    return Chain(number, APPEND, operations, dict(COLUMNS), ())


LONG = chain_of(
    Call("select", ("id", "n", "s", "t")),
    Call("where", ("id >= 0",)),
    Call("withColumnRenamed", ("n", "x")),
    Call("withColumn", ("y", Lit(1))),
    Call("drop", ("x",)),
)


def test_a_chain_is_shortened_to_the_steps_and_rows_that_it_takes_to_fail(lab: Lab) -> None:
    def fails(chain: Chain, rows: Any) -> bool:
        return any("y" in str(operation) for operation in chain.operations) and 7 in rows["id"].to_pylist()

    small, few = shrunk(lab.spark, LONG, rows_of(1, {}), fails)
    assert repr(small) == "df\n  .withColumn('y', F.lit(1))"
    assert few["id"].to_pylist() == [7]
    assert small.columns == {**COLUMNS, "y": "int"}


def test_of_many_chains_the_one_to_blame_is_found() -> None:
    chains = [chain_of(number=n) for n in range(13)]
    tried: list[int] = []

    def fail(some: Any) -> bool:
        tried.append(len(some))
        return any(c.number == 9 for c in some)

    assert [c.number for c in blamed(chains, fail)] == [9]
    assert len(tried) < len(chains)
    assert [c.number for c in blamed(chains, lambda some: len(some) > 6)] == [0]


def swapping(walk: Any, node: Any) -> Any:
    """A translation of projections that mixes up two columns of one type."""
    made = HANDLED(walk, node)
    names = list(made.schema.names)
    if {"s", "t"} <= set(names):
        s, t = names.index("s"), names.index("t")
        mixed = list(made.attributes)
        mixed[s], mixed[t] = mixed[t], mixed[s]
        return replace(made, attributes=tuple(mixed))
    return made


HANDLED = HANDLERS["projection"]


def test_what_ended_a_query_is_told_where_its_error_has_no_words() -> None:
    error = RuntimeError("[STREAM_FAILED] terminated with exception: ")
    error._stackTrace = "org.apache.X: ended\n\tat a.b\nCaused by: java.io.EOFException\n\tat c.d"  # type: ignore[attr-defined]
    assert said(error).endswith("caused by java.io.EOFException")


@pytest.mark.soak
def test_columns_that_are_swapped_are_noticed_and_shown_in_one_step(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    bystander = chain_of(Call("select", ("id", "n")), number=1)
    chains = [replace(chain_of(*LONG.operations), columns={"id": "bigint", "s": "string", "t": "string", "y": "int"})]
    chains.append(replace(bystander, columns={"id": "bigint", "n": "int"}))
    check_chains(lab, "whole", chains, rows_of(1, {}), True)
    monkeypatch.setitem(HANDLERS, "projection", swapping)
    with pytest.raises(AssertionError) as found:
        check_chains(lab, "broken", chains, rows_of(1, {}), True)
    *_, shortest = str(found.value).split("The shortest chain that fails:\n")
    chain, _, rest = shortest.partition("\nover ")
    assert chain.count("\n") == 1, shortest
    assert int(rest.split()[0]) <= 2, shortest
    assert "expected, not found" in rest


def chain_with(form: Refused, number: int) -> Chain:
    """Some random operations, one that is refused, and some more operations."""
    for attempt in range(1000):
        maker = Maker(attempt, number, APPEND)
        maker.forms = (form,)
        before = maker.chain()
        if any(isinstance(operation, Refused) for operation in before.operations):
            return before
    raise AssertionError(f"no chain takes {form}")


def test_what_a_stream_cannot_have_is_refused_wherever_it_stands(lab: Lab) -> None:
    """Each of them asserts it when it is applied to a stream."""
    folder = lab.folder / "refused" / "in"
    write_batches(folder, rows_of(1, {}), 1)
    stream = lab.stream(folder)
    for number, form in enumerate(FORMS):
        applied(chain_with(form, number).operations, stream)


@pytest.mark.soak
@pytest.mark.parametrize("chaining", [True, False])
def test_what_a_refusal_tells_gives_what_batch_gives(lab: Lab, chaining: bool) -> None:
    chains = [chain_with(form, number) for number, form in enumerate(FORMS)]
    check_chains(lab, "told ways", chains, rows_of(3, {}), chaining)
