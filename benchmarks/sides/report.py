"""What was measured as a table, as JSON, as plots and as a page of the docs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.report import table
from benchmarks.sides.measuring import Measured
from benchmarks.sides.scenario import Scenario
from headrace.installation import installing

HEADING = """\
# headrace beside its peers

`headrace bench --page` makes this page of what it measured. Each way of doing the same work ran in a process of
its own, in turn with the others, and a figure counts only if its results are those of the first way. The ratio is
to the first line. A line at the end of a bar spans the rounds. Where headrace loses, a line in bold says so."""
CLOSE = 1.05  # what differs by less is the same: the rounds of one way differ by as much


def as_json(scenario: Scenario, found: list[Measured]) -> dict[str, Any]:
    """Return a scenario with its figures, ratios of the first way first."""
    ways = []
    base = next((measured.figure for measured in found if measured.figures and not measured.skipped), None)
    for measured in found:
        way = {key: value for key, value in asdict(measured).items() if key != "answer"}
        if measured.figures and not measured.skipped:
            way |= {"figure": measured.figure, "ratio": measured.figure / base if base else None}
        ways.append(way)
    about = {
        key: value for key, value in asdict(scenario).items() if key not in ("ways", "rounds", "timeout")
    }
    return {**about, "ways": ways}


def verdict(scenario: dict[str, Any]) -> str:
    """Return a sentence on the peers that are better, or that none was measured; "" if none is better."""
    peers = [way for way in scenario["ways"] if way.get("ratio") and not way["name"].startswith("headrace")]
    ours = [
        way["ratio"] for way in scenario["ways"] if way.get("ratio") and way["name"].startswith("headrace")
    ]
    if not ours:
        return ""
    if not peers:
        return "No peer was measured here."
    more = scenario["more_is_better"]
    best = max(ours) if more else min(ours)
    better = [way for way in peers if (way["ratio"] > best * CLOSE if more else way["ratio"] * CLOSE < best)]
    if not better:
        return ""
    words = [f"{way['name']} ({max(way['ratio'] / best, best / way['ratio']):.1f} times)" for way in better]
    return f"headrace loses here to {', '.join(words)}."


def as_text(scenario: dict[str, Any]) -> str:
    """Return a table of a scenario: ratios first."""
    rows = []
    for way in scenario["ways"]:
        if way["skipped"]:
            rows.append([way["name"], "–", f"skipped: {way['skipped']}", ""])
            continue
        ratio = "–" if way["ratio"] is None else f"{way['ratio']:.2f}"
        rounds = f"{short(min(way['figures']))} to {short(max(way['figures']))}"
        if way.get("note"):
            rounds += f"; {way['note']}"
        rows.append([way["name"], ratio, short(way["figure"]), rounds])
    lines = [table(["", "ratio", scenario["unit"], "rounds"], rows)]
    told = verdict(scenario)
    return "\n\n".join([*lines, *([f"**{told}**"] if told else [])])


def short(figure: float) -> str:
    """Return a figure with four digits, or all of those before the point."""
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"


def page(results: dict[str, Any], pictures: list[str]) -> str:
    """Return the page of the docs, made of nothing but the JSON."""
    measured: dict[str, list[str]] = {}
    parts = []
    for scenario in results["scenarios"]:
        about = scenario.get("about", results["about"])
        where = "{date}, {machine}, {device}; commit {commit}; {versions}".format_map(about)
        measured.setdefault(where, []).append(f"`{scenario['name']}`")
        part = [f"## {scenario['title']}", ""]
        if f"{scenario['name']}.svg" in pictures:
            part += [f"![{scenario['title']}: {scenario['unit']}](bench/{scenario['name']}.svg)", ""]
        parts += [*part, as_text(scenario), "", f"`headrace bench {scenario['name']}`", ""]
    said = [f"- {', '.join(names)}: {where}." for where, names in measured.items()]
    return "\n".join([*HEADING.splitlines(), "", *said, "", *parts])


def plot(scenario: dict[str, Any], folder: Path) -> bool:
    """Draw a scenario as bars, as SVG and PNG; return whether there was anything to compare."""
    ways = [way for way in scenario["ways"] if not way["skipped"]]
    if len(ways) < 2 or not any(way["figure"] for way in ways):
        return False
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"  # the same picture has the same bytes
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text, which is a tenth of its outlines
    from matplotlib import pyplot

    names, figures = [way["name"] for way in ways][::-1], [way["figure"] for way in ways][::-1]
    colours = ["#2e7d6b" if name.startswith("headrace") else "#9aa5b1" for name in names]
    figure, axes = pyplot.subplots(figsize=(8, 0.9 + 0.42 * len(ways)), layout="constrained")
    is_wide = min(figures) > 0 and max(figures) / min(figures) > 30
    axes.barh(names, figures, color=colours, height=0.62, log=is_wide)
    for place, way in enumerate(ways[::-1]):
        ratio = f" (×{way['ratio']:.2f})" if way["ratio"] is not None else ""
        rounds = min(way["figures"]), max(way["figures"])
        axes.plot(rounds, (place, place), color="#1f2933", linewidth=1)
        text, beside = f"{short(way['figure'])}{ratio}", (rounds[1], place)
        axes.annotate(text, beside, (5, 0), textcoords="offset points", va="center", fontsize=9)
    better = "more" if scenario["more_is_better"] else "less"
    axes.set_xlabel(f"{scenario['unit']}; {better} is better{', logarithmic' if is_wide else ''}")
    axes.xaxis.set_major_formatter("{x:,g}")
    figure.suptitle(scenario["title"], fontsize=10, x=0.01, ha="left")
    axes.margins(x=0.22)
    axes.spines[["top", "right"]].set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{scenario['name']}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{scenario['name']}.png", dpi=120)
    pyplot.close(figure)
    return True


def keep(results: dict[str, Any], folder: Path) -> Path:
    """Write JSON into a folder; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    to = folder / "bench.json"
    to.write_text(json.dumps(results, indent=1) + "\n")
    return to


def write(results: dict[str, Any], folder: Path, docs: Path | None) -> list[Path]:
    """Write JSON and plots into a folder, and with `docs` the page and its pictures; return the files."""
    to = keep(results, folder)
    try:
        drawn = [each["name"] for each in results["scenarios"] if plot(each, (docs or folder) / "bench")]
    except ImportError as error:
        print(f"no plots: {error}; {installing('demo')}")
        drawn = []
    if docs is None:
        return [to]
    if docs != folder:
        for picture in (docs / "bench").glob("*.png"):
            picture.unlink()  # the page shows the vectors
    (docs / "bench.md").write_text(page(results, [f"{name}.svg" for name in drawn]))
    return [to, docs / "bench.md"]
