"""RESULTS.md, the plots and the page on the cost model, all from the raw figures in results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.aims import AIMS, Aim
from benchmarks.cost_model import TERMS, fit_and_check, points_of, worst_held_out
from benchmarks.latency import shown
from benchmarks.words import HOW, NOTES, SIDES, TITLES

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
MODEL_PAGE = HERE.parent / "docs" / "design" / "cost-model.md"


def write(results: Mapping[str, Any]) -> None:
    """Write everything that can be made from what was measured."""
    data = {name: s["data"] for name, s in results["sections"].items()}
    RESULTS.write_text(results_page(results, plots.draw_all(data)))
    if "curves" in data:
        MODEL_PAGE.write_text(model_page(points_of(data)))


def results_page(results: Mapping[str, Any], drawn: Sequence[str]) -> str:
    """``drawn``: names of the plots there are."""
    sections = results["sections"]
    data = {name: s["data"] for name, s in sections.items()}
    parts = [_head(sections), "## Aims\n\n" + aims_table(data), _pictures(drawn, ("ratios.svg", "throughput.svg"))]
    for name, title in TITLES.items():
        if name in data:
            parts.append(_section(name, title, sections, drawn))
    parts += [HOW, _machine(sections)]
    return "\n\n".join(p.strip() for p in parts if p) + "\n"


def _head(sections: Mapping[str, Any]) -> str:
    minutes = sum(s["seconds"] for s in sections.values()) / 60
    return (
        "# Benchmarks\n\nWritten by `make bench` from `benchmarks/results.json`. Compare figures within a section, "
        f"whose runs took turns on the machine, and not between sections. All of it took {minutes:.0f} minutes."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; all columns but the first two are numbers."""
    marks = ["---" if i < 1 else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, marks, *rows])


# -- aims ---------------------------------------------------------------------------------------------------------


def aims_table(data: Mapping[str, Any]) -> str:
    head = ("against", "what", "aim", "measured", "met")
    return table(head, [aim_row(aim, aim.measure(data)) for aim in AIMS])


def aim_row(aim: Aim, value: float | None) -> tuple[str, ...]:
    bound = f"{'at most' if aim.at_most else 'at least'} {aim.bound:g}"
    if value is None:
        return aim.group, aim.what, bound, "not measured", "-"
    return aim.group, aim.what, bound, ratio(value), "yes" if aim.met(value) else "**no**"


def ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


# -- sections -----------------------------------------------------------------------------------------------------


def _section(name: str, title: str, sections: Mapping[str, Any], drawn: Sequence[str]) -> str:
    data = sections[name]["data"]
    if name == "state":
        body = state_tables(data)
    elif name == "snapshot":
        body = snapshot_text(data)
    elif name == "savepoints":
        body = savepoint_table(data)
    elif name == "answers":
        body = answers_table(data)
    elif name == "latency":
        body = table(shown.HEAD, shown.rows(data))
    elif name == "curves":
        points = points_of({n: s["data"] for n, s in sections.items()})
        body = "The model that is fitted to them: [cost-model.md](../docs/design/cost-model.md).\n\n" + curve_table(
            points
        )
    else:
        body = sides_table(data)
    pictures = _pictures(drawn, [f for f in drawn if f.startswith(f"{name}-")])
    return "\n\n".join(p for p in (f"## {title}", NOTES.get(name, ""), body, pictures) if p)


def side_name(name: str) -> str:
    """``jvm, 10000 keys`` for people."""
    first, comma, rest = name.partition(",")
    role, _, more = first.partition(" ")
    full = f"{SIDES[role]} {more}".strip() if role in SIDES else first
    return (full + comma + rest).replace("10000 keys", "10 K keys").replace("1000000 keys", "1 M keys")


def sides_table(sides: Mapping[str, Mapping[str, Any]]) -> str:
    head = (
        "engine",
        "rows a batch",
        "batches",
        "median batch, s",
        "rows/s",
        "peak memory, MiB",
        "largest Python worker, MiB",
    )
    return table(head, [side_row(name, side) for name, side in sides.items()])


def answers_table(data: Mapping[str, Any]) -> str:
    """Each query: how many rows came out, on which engines, and whether they were the same."""
    rows = []
    for name, found in data.items():
        counts = sorted({str(e.get("rows", "failed")) for e in found["engines"].values()})
        engines = ", ".join(side_name(engine) for engine in found["engines"])
        rows.append((name, engines, " or ".join(counts), "yes" if found["equal"] else "**no**"))
    return table(("query", "engines", "rows", "equal"), rows)


def side_row(name: str, side: Mapping[str, Any]) -> tuple[str, ...]:
    if "failed" in side:
        return side_name(name), "failed: " + side["failed"].replace("|", "/").splitlines()[0][:120], *["-"] * 5
    memory = side["memory"]
    if "median_s" not in side:  # a slope
        rows = "{:,} to {:,} rows".format(*side["rows"])
        return side_name(name), rows, "-", "-", f"{side['rows_per_s']:,.0f}", f"{memory['total_mib']:,}", "-"
    figures = (
        f"{side['rows_a_batch']:,}",
        str(side["batches"]),
        f"{side['median_s']:.2f}",
        f"{side['rows_per_s']:,.0f}",
    )
    return side_name(name), *figures, f"{memory['total_mib']:,}", f"{memory['python_worker_mib']:,}"


def state_tables(data: Mapping[str, Any]) -> str:
    head = ("keys stored", "filled in, s", *(f"{t} touched, s" for t in ("1 K", "10 K", "100 K", "1 M")))
    rows = []
    for name, s in data.items():
        by_rows = {int(k): v["median_s"] for k, v in s["touched"].items()}
        rows.append((name, f"{s['fill_s']:.0f}", *(f"{by_rows[t]:.2f}" for t in sorted(by_rows))))
    more = (
        "keys stored",
        "restore: start() returns, s",
        "first batch done, s",
        "job's folder and cache, MiB",
        "largest Python worker, MiB",
        "all memory, MiB",
    )
    others = [
        (
            name,
            f"{s['restore']['started_s']:.1f}",
            f"{s['restore']['first_batch_s']:.1f}",
            f"{s['disk_bytes'] / 2**20:,.0f}",
            f"{s['memory']['python_worker_mib']:,}",
            f"{s['memory']['total_mib']:,}",
        )
        for name, s in data.items()
    ]
    return f"{table(head, rows)}\n\n{table(more, others)}\n\n{checkpoint_table(data)}"


def checkpoint_table(data: Mapping[str, Any]) -> str:
    """Checkpoints by touched keys a batch: the mean of each figure."""
    rows = []
    for name, s in data.items():
        touched = sorted({c["touched"] for c in s["history"] if c["touched"] is not None})
        for keys in touched:
            found = [c for c in s["history"] if c["touched"] == keys]
            mean = {k: sum(c[k] for c in found) / len(found) for k in ("written_rows", "written_bytes", "duration_ms")}
            rows.append(
                (
                    name,
                    f"{keys:,}",
                    str(len(found)),
                    f"{mean['written_rows']:,.0f}",
                    f"{mean['written_bytes'] / 2**20:.2f}",
                    f"{mean['duration_ms'] / 1000:.2f}",
                )
            )
    head = ("keys stored", "touched a batch", "checkpoints", "rows written", "MiB written", "trigger to completion, s")
    return table(head, rows)


def snapshot_text(data: Mapping[str, Any]) -> str:
    return (
        f"Checkpoint of {data['rows']:,} rows in {data['files']} files ({data['size_bytes'] / 2**20:.1f} MiB): the "
        f"slowest task's snapshot took {data['write_ms']:,} ms, pyarrow {data['raw_ms']:,.0f} ms for the same rows, as "
        f"many files at a time. From trigger to completion, batch included: {data['duration_ms'] / 1000:.2f} s."
    )


def savepoint_table(data: Mapping[str, Any]) -> str:
    """What was done to how many keys, its seconds, and those of raw Parquet."""
    raw, starts, imported, got = data["raw"], data["starts"], data["import"], data["get"]

    def row(what: str, seconds: float, raw_s: float | None = None) -> tuple[str, ...]:
        return what, f"{seconds:.2f}", *(("-", "-") if raw_s is None else (f"{raw_s:.2f}", ratio(seconds / raw_s)))

    restored, fresh, made = starts["restored"], starts["fresh"], data["bootstrap"]
    rows = [
        row("an idle job's checkpoint", data["checkpoint_s"]),
        row("savepoint", data["savepoint_s"], raw["write_s"]),
        row("all rows read", data["read_s"], raw["read_s"]),
        row("fresh start, first batch done", fresh["first_batch_s"]),
        row("restore, start() returns", restored["started_s"]),
        row("restore, first batch done", restored["first_batch_s"], raw["read_s"]),
        row("restore, beyond a fresh start", restored["first_batch_s"] - fresh["first_batch_s"], raw["read_s"]),
        row("fields changed, start() returns", starts["fields"]["started_s"]),
        row("fields changed, first batch done", starts["fields"]["first_batch_s"]),
        row("migrated, beyond a restore", starts["function"]["started_s"] - restored["started_s"], raw["rewrite_s"]),
        row(f"import of {imported['keys']:,} keys", imported["s"], imported["raw_s"]),
        row(f"bootstrap of {made['keys']:,} keys, {made['rows']:,} rows", made["s"], made["raw_s"]),
    ]
    looked = (
        f"A look-up of one key of {data['keys']:,} read {got['state_bytes'] / 2**10:,.0f} KiB of "
        f"{got['state_files']} of {data['files']} state files ({data['bytes'] / 2**20:,.0f} MiB), and "
        f"{got['other_bytes'] / 2**10:,.0f} KiB of records."
    )
    return f"{table(('what', 'seconds', 'raw Parquet, s', 'ratio'), rows)}\n\n{looked}"


def curve_table(points: Sequence[Mapping[str, Any]]) -> str:
    _, checks = fit_and_check(points)
    head = (
        "varied",
        "keys stored",
        "rows",
        "touched",
        "key groups",
        "lanes",
        "interval, s",
        "mean batch, s",
        "predicted, s",
        "error",
        "fitted",
    )
    rows = [
        (
            c.point["curve"],
            *(f"{c.point[k]:,}" for k in ("keys", "rows", "touched", "groups", "lanes", "interval_s")),
            f"{c.measured_s:.2f}",
            f"{c.predicted_s:.2f}",
            f"{c.error:.0%}",
            "held out" if c.point["held_out"] else "yes",
        )
        for c in checks
    ]
    return table(head, rows)


def _pictures(drawn: Sequence[str], wanted: Sequence[str]) -> str:
    return "\n".join(f"![{name}](plots/{name})" for name in wanted if name in drawn)


# -- the cost model's page ------------------------------------------------------------------------------------------


def model_page(points: Sequence[Mapping[str, Any]]) -> str:
    model, checks = fit_and_check(points)
    terms = [(name, f"{s:.3f}", TERMS[name]) for name, s in zip(TERMS, model.seconds)]
    held = [c for c in checks if c.point["held_out"]]
    worst, mean = worst_held_out(checks), sum(c.error for c in held) / len(held)
    return (
        "# What a batch costs\n\nWritten by `make bench`. The model is `benchmarks/cost_model.py`; how its points were "
        "measured, and on what machine, is in [RESULTS.md](../../benchmarks/RESULTS.md).\n\n"
        "```\nt     = floor + rows_by_lane * rows / min(lanes, cores) + rows_ * rows + touched_ * touched\n"
        "        + stored_ * touched * log10(max(1, stored)) + groups_ * groups / 100 + lanes_ * lanes\n"
        "        + (checkpoint + changed_ * changed) * share\n"
        "share = min(1, t / interval)      checkpoints a batch\n"
        "changed = min(keys, touched / share)      keys that a checkpoint has to write\n```\n\n"
        "Rows and keys are in millions, times in seconds. Keys stored count only through those that are touched: each "
        "is looked for in more and larger runs, and what it changes is merged into more of them.\n\n"
        f"{table(('term', 'seconds', 'for'), terms)}\n\n"
        f"Fitted by least squares of the relative error to {len(checks) - len(held)} measured settings; on the "
        f"{len(held)} held out it is off by {mean:.0%} in the mean and {worst:.0%} at worst (aim: 25%).\n\n"
        "![measured and predicted](../../benchmarks/plots/curves-model.svg)\n\n"
        "To size a cluster: batches of a backlog take `t` for `rows` rows, so `rows / t` is what it can take in a "
        "second. Rows and touched keys are work that partitions share (measured here on two cores); the floor, a "
        "lane and a checkpoint are paid once a batch however many cores there are.\n"
    )


def _machine(sections: Mapping[str, Any]) -> str:
    if not sections:
        return ""
    newest = max(sections.values(), key=lambda s: s["when"])
    m = newest["machine"]
    runs = sorted({(s["when"][:16], s["machine"]["commit"] or "?") for s in sections.values()})
    peers = "; ".join(f"{name}: {', '.join(packages)}" for name, packages in m["peers"].items())
    return (
        "## Machine and versions\n\n"
        f"- {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB; {m['system']}; {m['java']}; Python {m['python']}.\n"
        f"- Ours: {', '.join(m['ours'])}.\n- Peers: {peers}.\n"
        f"- Measured from {runs[0][0]} (commit {runs[0][1]}) to {runs[-1][0]} UTC (commit {runs[-1][1]})."
    )
