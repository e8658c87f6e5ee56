"""The report of the noisy neighbour: its figures, kept in a file, as a table and as a plot."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

COLOURS = {"alone": "#5f6b76", "shared SMs": "#c8344a", "own SMs": "#1f7a64"}


@dataclass(frozen=True)
class Figures:
    """The result of one flow in one case; latencies are in µs."""

    case: str
    flow: str
    sms: int
    rate: float
    latencies: list[float]
    frames: int
    wrong: int

    def percentile(self, share: float) -> float:
        return float(np.percentile(self.latencies, share))


@dataclass(frozen=True)
class Report:
    """The figures of every case, and the device that they come from."""

    device: str
    measured: bool
    frames: int
    rows: list[Figures]

    @property
    def kind(self) -> str:
        return "measured" if self.measured else "SIMULATED, not measured"

    @property
    def clock(self) -> str:
        return "real" if self.measured else "virtual"

    def critical(self) -> list[Figures]:
        """Return the critical flow's figures: alone, on shared SMs and on its own SMs."""
        return [row for row in self.rows if row.flow == "critical"]

    def ratios(self) -> tuple[float, float]:
        """Return the p99 on shared SMs and on own SMs, as multiples of the p99 alone."""
        alone, shared, own = (row.percentile(99) for row in self.critical())
        return shared / alone, own / alone

    def conclusion(self) -> str:
        shared, own = self.ratios()
        return (
            f"Beside the noisy flow the critical flow's p99 is {shared:.1f} times what it is alone; "
            f"on its own {self.critical()[-1].sms} SMs it is {own:.1f} times. "
            f"Wrong frames: {sum(row.wrong for row in self.rows)}."
        )


def save(report: Report, path: Path) -> None:
    """Write the report, with every latency, to a JSON file from which it can be drawn again."""
    content = asdict(report)
    for row in content["rows"]:
        row["rate"] = round(row["rate"], 1)
        row["latencies"] = [round(latency, 1) for latency in row["latencies"]]
    rows = ",\n".join(json.dumps(row) for row in content.pop("rows"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{json.dumps(content)[:-1]}, "rows": [\n{rows}\n]}}\n')


def load(path: Path) -> Report:
    """Return the report that `save` wrote to a file."""
    content = json.loads(path.read_text())
    rows = [Figures(**row) for row in content.pop("rows")]
    return Report(rows=rows, **content)


def show(report: Report) -> None:
    """Print the report as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{report.device}: {report.kind}, {report.frames} critical frames",
        caption=f"latencies on the GPU in µs, in {report.clock} time",
    )
    for column in ("case", "flow"):
        table.add_column(column, no_wrap=True)
    for column in ("SMs", "frames/s", "GPU p50", "GPU p99", "wrong"):
        table.add_column(column, justify="right")
    for row in report.rows:
        table.add_row(
            row.case if row.flow == "critical" else "",
            row.flow,
            str(row.sms),
            f"{row.rate:.0f}",
            f"{row.percentile(50):.0f}",
            f"{row.percentile(99):.0f}",
            f"{row.wrong} of {row.frames}",
        )
    Console().print(table)


def plot(report: Report, path: Path) -> None:
    """Draw every latency of the critical flow, one band for each case, with its p50 and p99."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    rows = report.critical()
    shared, own = report.ratios()
    labels = {
        "alone": "alone",
        "shared SMs": "beside a noisy flow,\nsharing all SMs",
        "own SMs": f"beside a noisy flow,\non its own {rows[-1].sms} SMs",
    }
    figure, axes = pyplot.subplots(figsize=(8.4, 3.8), layout="constrained")
    for place, row in enumerate(rows):
        colour = COLOURS[row.case]
        # Frames run from the top of a band to its bottom, so that equal latencies do not hide each other.
        heights = place + np.linspace(-0.3, 0.3, len(row.latencies))
        axes.plot(row.latencies, heights, ".", color=colour, markersize=3, alpha=0.5, markeredgewidth=0)
        middle, high = row.percentile(50), row.percentile(99)
        for value, style in ((middle, ":"), (high, "-")):
            ends = [place - 0.38, place + 0.38]
            axes.plot([value, value], ends, "-", color="white", linewidth=4, zorder=3)
            axes.plot([value, value], ends, style, color=colour, linewidth=2, zorder=4)
        axes.annotate(
            f"p99 {high:,.0f} µs\np50 {middle:,.0f} µs",
            (max(row.latencies), place),
            (9, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=colour,
        )
    axes.set_yticks(range(len(rows)), [labels[row.case] for row in rows], fontsize=10.5)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(COLOURS[row.case])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log")
    every = [latency for row in rows for latency in row.latencies]
    axes.set_xlim(0.9 * min(every), 1.75 * max(every))
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.grid(axis="x", color="#e3e6e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(
        f"GPU latency of the critical kernel, µs of {report.clock} time, log scale\n"
        "(dot: one frame; dotted line: p50; solid line: p99)",
        fontsize=10,
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(
        f"p99 beside a noisy flow: {shared:.1f}× on shared SMs, {own:.1f}× on its own {rows[-1].sms} SMs",
        fontsize=13,
        fontweight="bold",
    )
    axes.set_title(
        f"multiples of its p99 alone; {report.device}, {report.kind}, {report.frames} frames each",
        fontsize=10,
        color="#444444",
        x=0.38,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
    pyplot.close(figure)
