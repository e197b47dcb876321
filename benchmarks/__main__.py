"""Run the benchmarks and write what they say.

make bench                     everything: benchmarks/results.json, RESULTS.md, plots, the cost model
make bench ONLY=keyed,small    these sections again; the others stay as they were
make bench ONLY=queries        all sections with Spark's operators: answers, aggregates, windows, joins ...
make bench BENCH_ARGS=--resume what has not been measured with this commit yet: go on after an interruption
python -m benchmarks --quick   tiny sizes, to see that everything works; writes nothing
python -m benchmarks --render  only write the report again from results.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import machine, report

HERE = Path(__file__).parent
RAW = HERE / "results.json"


def main(arguments: Sequence[str] | None = None) -> int:
    from benchmarks.sections import SECTIONS, TOGETHER

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes; writes nothing")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--resume", action="store_true", help="without the sections that this commit has measured")
    parser.add_argument("--only", help=f"sections, with commas between: {', '.join([*SECTIONS, *TOGETHER])}")
    args = parser.parse_args(arguments)
    named = args.only.split(",") if args.only else list(SECTIONS)
    wanted = [one for name in named for one in TOGETHER.get(name, (name,))]
    unknown = sorted(set(wanted) - set(SECTIONS))
    if unknown:
        parser.error(f"there is no section {unknown}; there are {sorted(SECTIONS)}")
    results = json.loads(RAW.read_text()) if RAW.exists() else {"sections": {}}
    if args.resume:
        wanted = remaining(wanted, results, machine.commit())
    failed = [] if args.render else [n for n in wanted if not measure(n, SECTIONS[n], args.quick, results)]
    if not args.quick:
        report.write(results)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def remaining(wanted: Sequence[str], results: dict[str, Any], commit: str | None) -> list[str]:
    """Without what was measured with ``commit``; results that are not committed yet do not make it another."""
    known = results["sections"]
    at = {name: known[name]["machine"]["commit"] for name in wanted if name in known}
    return [name for name in wanted if commit is None or _clean(at.get(name)) != _clean(commit)]


def _clean(commit: str | None) -> str | None:
    return commit.removesuffix("-dirty") if commit else None


def measure(name: str, section: Any, quick: bool, results: dict[str, Any]) -> bool:
    """One section, into ``results`` and, unless quick, at once into the file: what follows may fail."""
    print(f"{name}: {(section.__doc__ or '').splitlines()[0] if section.__doc__ else ''}", flush=True)
    began = time.monotonic()
    try:
        data = section(quick)
    except Exception:  # noqa: BLE001 - the other sections are measured all the same, and the exit code tells
        traceback.print_exc()
        return False
    seconds = round(time.monotonic() - began)
    print(f"{name}: {seconds} s", flush=True)
    if quick:
        print(json.dumps(data)[:2000], flush=True)
        return True
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    results["sections"][name] = {"when": when, "seconds": seconds, "machine": machine.describe(), "data": data}
    RAW.write_text(json.dumps(results, indent=1) + "\n")
    return True


if __name__ == "__main__":
    sys.exit(main())
