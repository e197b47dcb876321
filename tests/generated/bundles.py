"""Bundles of generated chains, run and explained: what failed, in the shortest chain that fails."""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.generated.chains import APPEND, MERGE, ODD_NAMES, ODDER_NAMES, Chain, Maker
from tests.generated.lab import Difference, Lab
from tests.generated.shrink import shrunk
from tests.generated.values import Pools, table

ROWS = 12

Run = Callable[[Sequence[Chain], pa.Table], list[Difference]]
"""Chains in one query over rows: what came out wrong."""


@dataclass(frozen=True)
class Way:
    """How chains run. ``seed`` chooses one of the four."""

    kind: str
    chaining: bool

    @classmethod
    def of(cls, seed: int) -> Way:
        return cls((APPEND, MERGE)[seed % 2], seed % 4 < 2)


def bundled_chains(seed: int, size: int) -> list[Chain]:
    """For one query; their columns are renamed in front of the sinks."""
    names = (*ODD_NAMES, *ODDER_NAMES)
    return [Maker(seed, number, Way.of(seed).kind, names).chain() for number in range(size)]


def lonely_chain(seed: int) -> Chain:
    """For a query of its own, with columns that every sink takes."""
    kind = Way.of(seed).kind
    # delta-rs merges no columns with a backtick.
    names = [name for name in ODD_NAMES if kind == APPEND or "`" not in name]
    return Maker(seed, 0, kind, names).chain()


def rows_of(seed: int, pools: Pools, rows: int = ROWS) -> pa.Table:
    return table(random.Random(seed), pools, rows)


def check_bundle(lab: Lab, seed: int, pools: Pools, size: int) -> None:
    """``size`` chains in one query. Raises ``AssertionError`` with the shortest chain that shows the same."""
    check_chains(lab, f"bundle {seed}", bundled_chains(seed, size), rows_of(seed, pools), Way.of(seed).chaining)


def say(text: str) -> None:
    """As it comes, past what pytest keeps."""
    print(text, file=sys.__stderr__, flush=True)


def check_chains(lab: Lab, what: str, chains: Sequence[Chain], rows: pa.Table, chaining: bool) -> None:
    def run(some: Sequence[Chain], on: pa.Table) -> list[Difference]:
        return lab.bundle(some, on, chaining=chaining)

    try:
        wrong = run(chains, rows)
        suspects: Sequence[Chain] = list({d.chain.number: d.chain for d in wrong}.values())
        said = "\n".join(map(str, wrong[:2]))
    except Exception as error:  # noqa: BLE001 - the query failed: which chain is to blame?
        said = shown(error)
        suspects = blamed(chains, lambda some: problem(run, some, rows) is not None)
    if suspects:
        raise AssertionError(f"{what}, chaining {chaining}:\n{said}\n{explained(run, lab.spark, suspects, rows)}")


def check_alone(lab: Lab, seed: int, pools: Pools) -> None:
    """One chain in a query of its own, chained to its source, columns as they are."""
    chain, rows, chaining = lonely_chain(seed), rows_of(seed, pools), Way.of(seed).chaining
    try:
        said = "\n".join(map(str, lab.alone(chain, rows, chaining=chaining)[:2]))
    except Exception as error:  # noqa: BLE001 - any failure is one
        said = f"{chain!r}\n{shown(error)}"
    if said:
        why = explained(lambda chains, some: lab.alone(chains[0], some, chaining=chaining), lab.spark, [chain], rows)
        raise AssertionError(f"chain {seed}, chaining {chaining}:\n{said}\n{why}")


def blamed(chains: Sequence[Chain], fail: Callable[[Sequence[Chain]], bool]) -> Sequence[Chain]:
    """One chain that the failure of all of them comes from; or all, if it takes several."""
    whole = chains
    while len(chains) > 1:
        half = len(chains) // 2
        chains = next((some for some in (chains[:half], chains[half:]) if fail(some)), ())
    return chains or whole[:1]


def explained(run: Run, spark: Any, suspects: Sequence[Chain], rows: pa.Table) -> str:
    for chain in suspects:
        if problem(run, [chain], rows) is not None:
            small, few = shrunk(spark, chain, rows, lambda c, r: problem(run, [c], r) is not None)
            what = problem(run, [small], few)
            return f"The shortest chain that fails:\n{small!r}\nover {few.num_rows} rows: {what}"
    return "No chain of it fails alone."


def problem(run: Run, chains: Sequence[Chain], rows: pa.Table) -> str | None:
    try:
        wrong = run(chains, rows)
    except Exception as error:  # noqa: BLE001 - any failure is one
        return shown(error)
    return "\n".join(map(str, wrong[:2])) or None


def shown(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}: {str(error)[:1500]}"
