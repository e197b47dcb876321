"""The picture of a steady run: one small chart for each kind of thing that may grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

CHARTS = {
    "files": "files in ",
    "KiB": "KiB in ",
    "rows of ledgers": "rows in ",
    "MiB of memory": "MiB of ",
    "ms a batch": "ms a batch",
}


def draw(samples: Sequence[Mapping[str, float]], path: Path) -> None:
    """Every series against the minutes, the largest eight of a chart by name, the others together."""
    figure, charts = plt.subplots(len(CHARTS), figsize=(8, 3 * len(CHARTS)), constrained_layout=True)
    minutes = [sample["minute"] for sample in samples]
    for axes, (title, prefix) in zip(charts, CHARTS.items(), strict=True):
        names = {name for sample in samples for name in sample if name.startswith(prefix)}
        by_size = sorted(names, key=lambda name: -max(sample.get(name, 0) for sample in samples))
        for name in by_size[:8]:
            axes.plot(minutes, [s.get(name, 0) for s in samples], label=name.removeprefix(prefix) or name, linewidth=1)
        if by_size[8:]:
            rest = [sum(s.get(name, 0) for name in by_size[8:]) for s in samples]
            axes.plot(minutes, rest, label=f"{len(by_size) - 8} others", linewidth=1, color="gray")
        axes.set_title(title, fontsize=9)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=6, loc="upper left", frameon=False)
    charts[-1].set_xlabel("minutes")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
