"""Write the tables that the code has into the docs: configuration keys, nodes of Spark's plans, and what makes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from spark_ckpt.config import config_table
from spark_ckpt.plan.analysed.ledger import ledger_table, written_table
from spark_ckpt.plan.analysed.ledger_of_expressions import expressions_table, leaves_table

DOCS = Path(__file__).parents[1] / "docs"
TABLES: list[tuple[str, str, Callable[[], str]]] = [
    ("configuration.md", "keys", config_table),
    ("design/front-door.md", "ledger", ledger_table),
    ("design/front-door.md", "leaves", leaves_table),
    ("methods.md", "written", written_table),
    ("methods.md", "expressions", expressions_table),
]


def main() -> None:
    for page, name, table in TABLES:
        path, between = DOCS / page, re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
        path.write_text(between.sub(lambda _, made=table: made(), path.read_text()))


if __name__ == "__main__":
    main()
