"""Draw a part of a trace file, as Perfetto shows it. As a program, it draws the pictures in docs:

PYTHONPATH=src:docs/programs HEADRACE_DEVICE=sim python docs/programs/trace_picture.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

COLOURS = {"camera": "#4c78a8", "segment": "#59a14f", "display": "#e0a030", "report": "#c0504d"}
DOCS = Path(__file__).parents[1]


def style(name):
    return {"color": COLOURS[name], "edgecolor": "white", "linewidth": 0.5}


def draw(axes, file, begin, end, title):
    """Draw the time from `begin` to `end`, in milliseconds."""
    events = json.loads(Path(file).read_text())
    names, tracks = {}, {}
    for event in events:
        if event["name"] == "process_name":
            names[event["pid"]] = event["args"]["name"].partition(": ")[2] or event["args"]["name"]
        elif event["name"] == "thread_name":
            tracks[event["pid"], event["tid"]] = event["args"]["name"]
    rows = {}
    for place in sorted(tracks):
        rows[place] = len(rows)
    bars = {}
    for event in events:
        if event["ph"] != "X":
            continue
        at, length = event["ts"] / 1e3, event["dur"] / 1e3
        if at > end or at + length < begin:
            continue
        row = rows[event["pid"], event["tid"]]
        # In simulated time a compute may take no time; a viewer shows such a slice as a line.
        axes.barh(row, max(length, (end - begin) / 400), left=at, height=0.62, **style(event["name"]))
        bars[event["cat"], event["name"], event["args"]["compute"]] = at, row
        if length > (end - begin) / 14:
            label = f"{event['name']} {event['args']['frame']}"
            axes.text(
                at + length / 2, row, label, ha="center", va="center", color="white", fontsize=7, clip_on=True
            )
    for (kind, name, number), (at, row) in bars.items():
        target = bars.get(("gpu", name, number)) if kind == "compute" else None
        if target is not None and at >= begin and target[0] <= end:
            arrow = {"arrowstyle": "->", "color": "#555555", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", xy=(target[0], target[1] - 0.3), xytext=(at, row + 0.3), arrowprops=arrow)
    labels = [f"{tracks[place]}\n{names[place[0]]}" for place in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(begin, end)
    axes.set_title(title, loc="left", fontsize=9)
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    from clinic import Clinic, SlicedClinic, trace

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.json", Path(folder) / "after.json"
        trace(Clinic, before)
        trace(SlicedClinic, after)
        figure, axes = pyplot.subplots(figsize=(9, 2.6), layout="constrained")
        draw(axes, before, 249, 283.5, "A trace: the thread that computes, and the streams of four operators")
        axes.set_xlabel("ms", fontsize=7)
        figure.savefig(DOCS / "trace.png", dpi=130)
        figure, both = pyplot.subplots(2, figsize=(9, 5.2), layout="constrained")
        draw(both[0], before, 245, 297, "All operators on all SMs")
        draw(both[1], after, 245, 297, "The camera's operators on a slice of 32 SMs")
        both[1].set_xlabel("ms", fontsize=7)
        figure.savefig(DOCS / "p99.png", dpi=130)


if __name__ == "__main__":
    main()
