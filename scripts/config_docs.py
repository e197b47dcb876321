"""Write the tables that the code has into the docs: configuration keys, nodes of Spark's plans, and what makes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from spark_ckpt.config import config_table
from spark_ckpt.plan.analysed.ledger import ledger_table, written_table

DOCS = Path(__file__).parents[1] / "docs"
TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "configuration.md": ("keys", config_table),
    "design/front-door.md": ("ledger", ledger_table),
    "methods.md": ("written", written_table),
}


def main() -> None:
    for page, (name, table) in TABLES.items():
        path, between = DOCS / page, re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
        path.write_text(between.sub(lambda _, made=table: made(), path.read_text()))


if __name__ == "__main__":
    main()
