"""Names with an alias in front are found in SQL texts that only Spark reads, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from spark_ckpt.plan._names_in_text import with_qualified

TEXTS = {
    "a.n <= b.m": "<a.n> <= <b.m>",
    "a . n + coalesce(b.`x y`.z, 1.5)": "<a.n> + coalesce(<b.`x y`.z>, 1.5)",
    "'a.n' || a.n": "'a.n' || <a.n>",
    "n > 1 AND m IS NULL": "n > 1 AND m IS NULL",
    "transform(xs, a -> a.n + b.m)": "transform(xs, a -> a.n + <b.m>)",
    "aggregate(xs, 0, (a, i) -> a.n + i.m, i -> i.m)": "aggregate(xs, 0, (a, i) -> a.n + i.m, i -> i.m)",
    "db.f(a.n)": "db.f(<a.n>)",
    "struct(a.*, b.m)": "struct(a.*, <b.m>)",
    "a.n IN (SELECT a.n FROM a)": "a.n IN (SELECT a.n FROM a)",
    "a.xs[0] + a.st.x": "<a.xs>[0] + <a.st.x>",
    "a.n -- a.m": "a.n -- a.m",
    "(a.n": "(a.n",
}


@pytest.mark.parametrize("text", TEXTS)
def test_names_are_found(text: str) -> None:
    assert with_qualified(text, lambda name: f"<{name}>") == TEXTS[text]


def test_what_is_not_known_stays() -> None:
    assert with_qualified("a.n + c.m", {"a.n": "`one`"}.get) == "`one` + c.m"
