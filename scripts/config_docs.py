"""Write the table of all configuration keys into docs/configuration.md."""

from __future__ import annotations

import re
from pathlib import Path

from spark_ckpt.config import config_table

DOCS = Path(__file__).parents[1] / "docs" / "configuration.md"
TABLE = re.compile(r"(?<=<!-- keys -->\n).*?(?=<!-- /keys -->)", re.DOTALL)


def main() -> None:
    DOCS.write_text(TABLE.sub(lambda _: config_table(), DOCS.read_text()))


if __name__ == "__main__":
    main()
