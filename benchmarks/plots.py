"""The pictures, from the raw figures. Each is drawn only if what it shows was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from benchmarks.aims import AIMS
from benchmarks.cost_model import fit_and_check, points_of

FOLDER = Path(__file__).parent / "plots"
OURS, OTHER, GOOD, BAD = "#1f6feb", "#9aa4b2", "#2da44e", "#cf222e"

plt.rcParams.update(
    {
        "svg.hashsalt": "benchmarks",  # the same figures give the same file
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
    }
)


def draw_all(data: Mapping[str, Any], folder: Path = FOLDER) -> list[str]:
    """Draw what can be drawn; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draw in PLOTS.items():
        figure = draw(data)
        if figure is not None:
            figure.savefig(folder / name, metadata={"Date": None})
            plt.close(figure)
            drawn.append(name)
        else:
            (folder / name).unlink(missing_ok=True)
    return drawn


def ratios(data: Mapping[str, Any]) -> Any:
    """Each aim as a bar: how many times over its bound it is."""
    found = [(a, v) for a in AIMS if (v := a.measure(data)) is not None and v > 0]
    if not found:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.8 + 0.24 * len(found)))
    over = [a.bound / v if a.at_most else v / a.bound for a, v in found]
    colors = [GOOD if a.met(v) else BAD for a, v in found]
    axes.barh(range(len(found)), [o - 1 for o in over], left=1, color=colors, height=0.7)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(found)), [f"{a.what}  |  {a.group}" for a, _ in found], fontsize=7)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("times as good as the aim (right of the line: met)")
    return figure


_BARS = (
    ("spark_ckpt", "keyed", "ours"),
    ("spark_ckpt, batches up to 1 s", "peers", "ours"),
    ("Spark JVM", "keyed", "jvm"),
    ("Spark pandas", "pandas", "pandas"),
    ("Flink SQL", "peers", "Flink SQL"),
    ("PyFlink", "peers", "PyFlink"),
    ("Bytewax", "peers", "Bytewax"),
    ("Bytewax, numpy", "peers", "Bytewax, combined with numpy"),
)


def throughput(data: Mapping[str, Any]) -> Any:
    """Rows/s of every engine at 10 K and at 1 M keys."""
    if "keyed" not in data:
        return None
    figure, both = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True)
    for axes, (title, keys) in zip(both, (("10 K keys", "10000 keys"), ("1 M keys", "1000000 keys"))):
        bars = [
            (n, data[s][f"{side}, {keys}"]["rows_per_s"])
            for n, s, side in _BARS
            if f"{side}, {keys}" in data.get(s, {})
        ]
        drawn = axes.barh(
            [n for n, _ in bars],
            [v for _, v in bars],
            color=[OURS if n.startswith("spark_ckpt") else OTHER for n, _ in bars],
        )
        axes.bar_label(
            drawn, [f"{v / 1e6:.2f} M" if v >= 1e5 else f"{v / 1e3:.1f} K" for _, v in bars], padding=3, fontsize=8
        )
        axes.set_xscale("log")
        axes.set_xlim(right=axes.get_xlim()[1] * 4)
        axes.set_title(f"{title}: rows/s", loc="left", fontsize=9)
        axes.grid(axis="y", visible=False)
    both[0].invert_yaxis()
    return figure


def state_batches(data: Mapping[str, Any]) -> Any:
    state = data.get("state")
    if state is None:
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8))
    stored = [s["stored"] / 1e6 for s in state.values()]
    touched = sorted({int(t) for s in state.values() for t in s["touched"]})
    for number, keys in enumerate(touched):
        times = [s["touched"].get(str(keys), {}).get("median_s") for s in state.values()]
        left.plot(stored, times, "o-", color=plt.cm.viridis(number / max(1, len(touched))), label=f"{keys:,} touched")
    _axes(left, "million keys stored", "median batch, s", log_x=True)
    right.plot(
        stored,
        [s["restore"]["first_batch_s"] for s in state.values()],
        "o-",
        color=OURS,
        label="restore to first batch, s",
    )
    _axes(right, "million keys stored", "s", log_x=True)
    return figure


def state_checkpoints(data: Mapping[str, Any]) -> Any:
    state = data.get("state")
    if state is None:
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8))
    for number, (name, s) in enumerate(state.items()):
        found = [c for c in s["history"] if c["touched"] is not None and c["written_rows"] > 0]
        color, rows = plt.cm.viridis(number / len(state)), [c["written_rows"] for c in found]
        left.scatter(rows, [c["written_bytes"] / 2**20 for c in found], s=14, color=color, label=f"{name} stored")
        right.scatter(rows, [c["duration_ms"] / 1000 for c in found], s=14, color=color, label=f"{name} stored")
    _axes(left, "keys written by a checkpoint", "MiB written", log_x=True, log_y=True)
    _axes(right, "keys written by a checkpoint", "trigger to completion, s", log_x=True)
    return figure


_CURVES = (
    ("touched", "touched", "keys touched a batch (1 M stored)", True),
    ("rows", "rows", "rows a batch (10 K and 100 K keys)", True),
    ("groups", "groups", "key groups (100 K rows, 1 M keys)", True),
    ("lanes", "lanes", "lanes (1 M rows, 10 K keys)", True),
    ("interval", "interval_s", "checkpoint interval, s (300 K rows, 1 M keys)", True),
    ("stored", "keys", "keys stored (100 K touched)", True),
)
# Points that belong to a curve beside their own, because only that setting differs.
_SHARED = {
    "groups": {"keys": 1_000_000, "rows": 100_000, "lanes": 2, "interval_s": 5},
    "lanes": {"keys": 10_000, "rows": 1_000_000, "groups": 32, "interval_s": 5},
    "interval": {"keys": 1_000_000, "rows": 300_000, "groups": 32, "lanes": 2},
    "stored": {"rows": 100_000, "touched": 100_000, "groups": 32, "lanes": 2, "interval_s": 5},
}


def curves(data: Mapping[str, Any]) -> Any:
    """Mean batch time over one setting each, with the model's prediction."""
    if "curves" not in data:
        return None
    _, checks = fit_and_check(points_of(data))
    figure, grid = plt.subplots(2, 3, figsize=(9.5, 5))
    for axes, (curve, x, label, log_x) in zip(grid.flat, _CURVES):
        found = [c for c in checks if _belongs(c.point, curve)]
        found.sort(key=lambda c: c.point[x])
        xs = [c.point[x] for c in found]
        axes.plot(xs, [c.measured_s for c in found], "o", color=OURS, label="measured")
        axes.plot(xs, [c.predicted_s for c in found], "x--", color="black", linewidth=0.8, label="model")
        _axes(axes, label, "mean batch, s", log_x=log_x)
        axes.set_xticks(sorted(set(xs)), [_short(x) for x in sorted(set(xs))], fontsize=7)
        axes.minorticks_off()
    return figure


def _short(number: float) -> str:
    """1.5 M, 30 K, 8; an hour between checkpoints is none in a run."""
    if number == 3600:
        return "none"
    for size, unit in ((1_000_000, "M"), (1_000, "K")):
        if number >= size:
            return f"{number / size:g} {unit}"
    return f"{number:g}"


def _belongs(point: Mapping[str, Any], curve: str) -> bool:
    shared = _SHARED.get(curve)
    return point["curve"] == curve or (shared is not None and all(point[k] == v for k, v in shared.items()))


def model(data: Mapping[str, Any]) -> Any:
    """Measured against predicted, with the aim's band."""
    if "curves" not in data:
        return None
    _, checks = fit_and_check(points_of(data))
    figure, axes = plt.subplots(figsize=(3.8, 3.4))
    ends = [0.0, 1.1 * max(c.measured_s for c in checks)]
    axes.fill_between(
        ends, [0.75 * e for e in ends], [1.25 * e for e in ends], color=OTHER, alpha=0.3, label="within 25%"
    )
    for held_out, color, label in ((False, OTHER, "fitted"), (True, OURS, "held out")):
        found = [c for c in checks if c.point["held_out"] == held_out]
        axes.scatter(
            [c.measured_s for c in found], [c.predicted_s for c in found], s=18, color=color, label=label, zorder=3
        )
    _axes(axes, "measured mean batch, s", "predicted, s")
    axes.set_xlim(left=0)
    return figure


def _axes(axes: Any, x: str, y: str, log_x: bool = False, log_y: bool = False) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0, top=1.15 * axes.dataLim.y1)
    axes.legend(fontsize=7)


PLOTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "ratios.svg": ratios,
    "throughput.svg": throughput,
    "state-batches.svg": state_batches,
    "state-checkpoints.svg": state_checkpoints,
    "curves-settings.svg": curves,
    "curves-model.svg": model,
}
