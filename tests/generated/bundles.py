"""Bundles of generated chains, run and explained: what failed, in the shortest chain that fails."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from tests.generated.chains import APPEND, MERGE, Chain, Maker
from tests.generated.lab import Lab
from tests.generated.shrink import shrunk
from tests.generated.values import Pools, table

ROWS = 12


def chains_of(seed: int, size: int, odd: bool = True) -> list[Chain]:
    kind = (APPEND, MERGE)[seed % 2]
    return [Maker(seed, number, kind, odd).chain() for number in range(size)]


def rows_of(seed: int, pools: Pools, rows: int = ROWS) -> pa.Table:
    return table(random.Random(seed), pools, rows)


def check_bundle(lab: Lab, seed: int, pools: Pools, size: int) -> None:
    """``size`` chains in one query. Raises ``AssertionError`` with the shortest chain that shows the same."""
    chains, rows, chaining = chains_of(seed, size), rows_of(seed, pools), seed % 4 < 2
    try:
        wrong = lab.bundle(chains, rows, chaining=chaining)
        suspects = list({d.chain.number: d.chain for d in wrong}.values())
        said = "\n".join(map(str, wrong[:2]))
    except Exception as error:  # noqa: BLE001 - the query failed: which chain is to blame?
        suspects, said = chains, str(error)[:2000]
    if suspects:
        raise AssertionError(f"bundle {seed}, chaining {chaining}:\n{said}\n{explained(lab, suspects, rows, chaining)}")


def check_alone(lab: Lab, seed: int, pools: Pools) -> None:
    """One chain in a query of its own, chained to its source, columns as they are."""
    (chain,), rows, chaining = chains_of(seed, 1, odd=False), rows_of(seed, pools), seed % 4 < 2
    try:
        said = "\n".join(map(str, lab.alone(chain, rows, chaining=chaining)[:2]))
    except Exception as error:  # noqa: BLE001 - any failure is one
        said = f"{chain!r}\n{str(error)[:1500]}"
    if said:
        raise AssertionError(f"chain {seed}, chaining {chaining}:\n{said}\n{explained(lab, [chain], rows, chaining)}")


def explained(lab: Lab, suspects: Sequence[Chain], rows: pa.Table, chaining: bool) -> str:
    for chain in suspects:
        if fails(lab, chain, rows, chaining):
            small, few = shrunk(chain, rows, lambda c, r: fails(lab, c, r, chaining))
            what = problem(lab, small, few, chaining)
            return f"The shortest chain that fails:\n{small!r}\nover {few.num_rows} rows: {what}"
    return "No chain of it fails alone."


def fails(lab: Lab, chain: Chain, rows: pa.Table, chaining: bool) -> bool:
    return problem(lab, chain, rows, chaining) is not None


def problem(lab: Lab, chain: Chain, rows: pa.Table, chaining: bool) -> str | None:
    try:
        wrong = lab.bundle([chain], rows, chaining=chaining)
    except Exception as error:  # noqa: BLE001 - any failure is one
        return str(error)[:1500]
    return "\n".join(map(str, wrong[:2])) or None
