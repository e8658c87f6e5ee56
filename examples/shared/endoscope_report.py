"""The report of the endoscope: its figures, kept in a file, as a table and as a picture."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

COLOURS = {"shared SMs": "#c8344a", "own SMs": "#1f7a64"}


@dataclass(frozen=True)
class Case:
    """The figures of one run; latencies are in ms.

    `latencies` are those of the frames, from the moment a frame was due at the camera until its mask was scored;
    `control` those of the steps of the control loop, from the moment a step was due until the host saw that it was
    done. `begun` is how late each step was launched, and `on_gpu` how long the GPU took from then on. `denoise` is
    the time that the GPU took to reduce the noise of a frame. `common` is the least part that a mask and its truth
    share.
    """

    name: str
    vision_sms: int
    control_sms: int
    network: str
    sent: int
    late: int
    scored: int
    wrong: int
    common: float
    rate: float
    latencies: list[float]
    denoise: list[float]
    control: list[float]
    begun: list[float]
    on_gpu: list[float]

    @property
    def unscored(self) -> int:
        """The number of frames that were sent and did not arrive."""
        return self.sent - self.scored


@dataclass(frozen=True)
class Report:
    """The figures of both runs, what they ran with, and the device that they come from."""

    device: str
    measured: bool
    width: int
    height: int
    rate: float
    seconds: float
    deadline: float
    cases: list[Case]

    @property
    def kind(self) -> str:
        return "measured" if self.measured else "SIMULATED, not measured"

    @property
    def clock(self) -> str:
        return "real" if self.measured else "virtual"

    def misses(self, case: Case) -> int:
        """Return the number of steps that were done later than the next was due."""
        return sum(latency > self.deadline for latency in case.control)

    def causes(self, case: Case) -> tuple[int, int]:
        """Return how many of the misses are due to the GPU, and how many to the host.

        A miss is due to the GPU if the GPU took at least half of the time. Otherwise the host launched the step
        late, or was late to see that it was done.
        """
        steps = zip(case.control, case.on_gpu, strict=True)
        by_gpu = sum(latency > self.deadline and on_gpu >= latency / 2 for latency, on_gpu in steps)
        return by_gpu, self.misses(case) - by_gpu

    def headroom(self, case: Case) -> float:
        """Return the part of the time between two frames that is left when a frame is done, for 99 of 100."""
        return 1 - float(np.percentile(case.latencies, 99)) * self.rate / 1000

    def conclusion(self) -> str:
        shared, own = self.cases
        frames, wrong = sum(case.scored for case in self.cases), sum(case.wrong for case in self.cases)
        return (
            f"Deadlines missed by the control loop: {self._missed(shared)} on shared SMs, "
            f"{self._missed(own)} on its own {own.control_sms} SMs. Wrong frames: {wrong} of {frames}."
        )

    def _missed(self, case: Case) -> str:
        by_gpu, by_host = self.causes(case)
        causes = f" ({by_gpu} due to the GPU, {by_host} due to the host)" if by_gpu or by_host else ""
        return f"{by_gpu + by_host} of {len(case.control)}{causes}"


def save(report: Report, picture: np.ndarray, path: Path) -> None:
    """Write the report, with every latency, to a JSON file, and the last picture to a PNG file beside it."""
    from PIL import Image

    content = asdict(report)
    cases = content.pop("cases")
    rows = ",\n".join(json.dumps(case) for case in cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{json.dumps(content)[:-1]}, "cases": [\n{rows}\n]}}\n')
    Image.fromarray(picture).save(path.with_suffix(".png"))


def load(path: Path) -> tuple[Report, np.ndarray]:
    """Return the report and the picture that `save` wrote."""
    from PIL import Image

    content = json.loads(path.read_text())
    cases = []
    for case in content.pop("cases"):
        if "on_gpu" not in case:  # an older file: all of the time after the launch counts as the GPU's
            steps = zip(case["control"], case["begun"], strict=True)
            case["on_gpu"] = [latency - begun for latency, begun in steps]
        cases.append(Case(**case))
    return Report(cases=cases, **content), np.asarray(Image.open(path.with_suffix(".png")))


def show(report: Report) -> None:
    """Print the report as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{report.device}: {report.kind}\n"
        f"{report.width}x{report.height} at {report.rate:g} frames/s for {report.seconds:g} s",
        caption=f"latencies in {report.clock} time; {', '.join(sorted({case.network for case in report.cases}))}",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    for case in report.cases:
        table.add_column(case.name, justify="right", no_wrap=True)
    for name, values in rows(report):
        table.add_row(name, *values)
    terminal = Console()
    (terminal if terminal.is_terminal else Console(width=100)).print(table)  # in a file, nothing is cut off


def rows(report: Report) -> list[tuple[str, list[str]]]:
    """Return the lines of the table: what is shown, and its value in each case."""

    def high(values: list[float]) -> str:
        middle, most = np.percentile(values, (50, 99))
        return f"{middle:.2f} / {most:.2f} ms"

    def steps(values: list[float]) -> str:
        middle, most = 1e3 * np.percentile(values, (50, 99))
        return f"{middle:.0f} / {most:.0f} / {1e3 * max(values):.0f} µs"

    lines = {
        "SMs: vision / control loop": lambda case: f"{case.vision_sms} / {case.control_sms}",
        "frames per second": lambda case: f"{case.rate:.1f}",
        "frame latency, p50 / p99": lambda case: high(case.latencies),
        "headroom of frame period": lambda case: f"{report.headroom(case):.0%}",
        "wrong frames": lambda case: f"{case.wrong} of {case.scored}",
        "frames lost / late at camera": lambda case: f"{case.unscored} / {case.late}",
        "noise reduction, p50 / p99": lambda case: high(case.denoise),
        "control step, p50 / p99 / max": lambda case: steps(case.control),
        f"deadlines of {report.deadline:g} ms missed": lambda case: (
            f"{report.misses(case)} of {len(case.control)}"
        ),
        "missed by the GPU / the host": lambda case: "{} / {}".format(*report.causes(case)),
    }
    return [(name, [line(case) for case in report.cases]) for name, line in lines.items()]


def draw(report: Report, picture: np.ndarray, path: Path) -> None:
    """Draw the last picture beside the latencies of the control loop and of the frames."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure = pyplot.figure(figsize=(10.4, 4.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.2, 1))
    image = figure.add_subplot(grid[:, 0])
    image.imshow(picture)
    image.set_axis_off()
    image.set_title("the last frame, with what the network found", fontsize=10, color="#444444")

    control = figure.add_subplot(grid[0, 1])
    for case in report.cases:
        times = np.arange(len(case.control)) * report.deadline / 1e3
        control.plot(
            times,
            case.control,
            ".",
            markersize=4,
            alpha=0.7,
            markeredgewidth=0,
            color=COLOURS[case.name],
            label=f"{case.name}: {report.misses(case)} of {len(case.control)} missed",
        )
    control.axhline(report.deadline, color="#444444", linewidth=1, linestyle="--")
    control.text(
        1.01, report.deadline, "deadline", transform=control.get_yaxis_transform(), fontsize=8, va="center"
    )
    control.set_yscale("log")
    control.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    control.yaxis.set_minor_formatter(ticker.NullFormatter())
    control.set_ylabel("control step, ms", fontsize=9)
    control.set_xlabel("time, s", fontsize=9)
    control.legend(
        fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, markerscale=2
    )

    latency = figure.add_subplot(grid[1, 1])
    period = 1e3 / report.rate
    most = max(period, *(max(case.latencies) for case in report.cases))
    for case in report.cases:
        bins = np.linspace(0, 1.03 * most, 150)
        latency.hist(case.latencies, bins, color=COLOURS[case.name], alpha=0.7)
    latency.axvline(period, color="#444444", linewidth=1, linestyle="--")
    top = latency.get_xaxis_transform()
    latency.text(period, 1.02, "next frame", transform=top, fontsize=8, ha="center")
    latency.set_xlim(0, 1.03 * most)
    latency.set_xlabel("from the camera to the scored mask, ms", fontsize=9)
    latency.set_ylabel("frames", fontsize=9)
    for axes in (control, latency):
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{report.device}, {report.kind}: {report.width}x{report.height}, {report.rate:g} frames/s",
        fontsize=11,
        fontweight="bold",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
