"""docs/testing-a-job.md: what it shows in an empty folder finds the bug, and passes when it is mended."""

from __future__ import annotations

import re
from pathlib import Path

from tests.testing.test_kit_plugin import run

PAGE = Path(__file__).parents[2] / "docs" / "testing-a-job.md"


def test_the_page_leads_from_an_empty_folder_to_a_caught_bug(tmp_path: Path) -> None:
    blocks = dict(re.findall(r'^```python title="(.*?)"\n(.*?)^```$', PAGE.read_text(), re.DOTALL | re.MULTILINE))
    for name in ("job.py", "test_job.py"):
        (tmp_path / name).write_text(blocks[name])
    said = run(tmp_path, "--rootdir", str(tmp_path), "--ckpt-schedules=5")
    assert "crash schedule 0: 3 rows are missing and 3 are too many" in said, said
    shown = 'replay it: pytest "test_job.py::test_the_counts_are_right_whatever_dies" --ckpt-schedule=0'
    assert shown in said
    assert shown in PAGE.read_text()
    before, _, behind = blocks["job.py"].partition("def count")
    query = behind[behind.index("def query") :]
    (tmp_path / "job.py").write_text(f"{before}{blocks['job.py, mended']}\n\n{query}")
    assert "1 passed" in run(tmp_path, "--rootdir", str(tmp_path), "--ckpt-schedules=5")
