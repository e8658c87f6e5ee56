"""The report of a plan: a page with the curve of each operator, and what was predicted beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headrace.planner.deciding import Decision, Figure, describe
from headrace.planner.measured import OperatorTimes
from headrace.planner.targets import shown_time

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem } td, th { padding: .25rem .8rem; text-align: right;
border-bottom: 1px solid #d8dee4 } td:first-child, th:first-child { text-align: left } .bad { color: #b3261e }
.good { color: #1a7f37 } figure { display: inline-block; margin: 0 1rem 1rem 0 } figcaption { font-weight: 600 }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 260, 150, 48, 24


def report(decision: Decision, title: str) -> str:
    """Return the page."""
    plan, measured = decision.plan, decision.measured
    parts = [
        f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1><p>{escape(plan.device)}, {plan.sm_count} SMs: {escape(describe(plan))}.</p>",
    ]
    for target, lacking in decision.impossible.items():
        parts.append(
            f"<p class=bad>{escape(str(target))} cannot be met: alone on the whole device it is missed by "
            f"{-lacking:.0%} of its bound.</p>"
        )
    parts += ["<h2>Goals</h2>", _figures(decision.figures)]
    if not decision.agrees:
        parts.append("<p class=bad>Prediction and measurement do not agree within a fifth.</p>")
    parts.append(
        "<h2>Operators</h2><p>Time on the device by SMs: the median, and the 99th percentile above it.</p>"
    )
    sms = {each: size for size, names in plan.slices.values() for each in names}
    parts += [
        _curve(name, one, sms.get(name)) for name, one in measured.operators.items() if one.curve is not None
    ]
    if decision.next_best is not None:
        other, figures = decision.next_best
        parts += [f"<h2>The next best plan</h2><p>{escape(describe(other))}.</p>", _figures(figures)]
    return "\n".join(parts) + "\n"


def _figures(figures: Sequence[Figure]) -> str:
    rows = "".join(_row(figure) for figure in figures)
    return f"<table><tr><th>goal<th>predicted<th>simulated<th>measured<th>margin</tr>{rows}</table>"


def _row(figure: Figure) -> str:
    target = figure.target
    best = figure.predicted if figure.measured is None else figure.measured
    shown = ["–" if value is None else target.shown(value) for value in (figure.simulated, figure.measured)]
    kind = "good" if target.is_met(best) else "bad"
    return (
        f"<tr><td>{escape(str(target))}<td>{target.shown(figure.predicted)}<td>{shown[0]}<td>{shown[1]}"
        f"<td class={kind}>{target.margin(best):.0%}</tr>"
    )


def _curve(name: str, one: OperatorTimes, sms: int | None) -> str:
    """Return the drawing of an operator's curve; a dot marks the slice that it got."""
    points = list(one.curve or ())
    most, highest = points[-1][0], max(max(times.p99 for _, times in points), 1.0)

    def at(count: int, time: float) -> tuple[float, float]:
        x = _LEFT + count / most * (_WIDTH - _LEFT - 8)
        return x, 8 + (1 - time / highest) * (_HEIGHT - _BOTTOM - 8)

    def line(values: Sequence[tuple[int, float]], colour: str) -> str:
        joined = " ".join("{:.1f},{:.1f}".format(*at(*value)) for value in values)
        return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'

    base = _HEIGHT - _BOTTOM
    drawn = [
        f'<line x1="{_LEFT}" y1="{base}" x2="{_WIDTH}" y2="{base}" stroke="#8c959f"/>',
        f'<text x="{_LEFT - 4}" y="14" text-anchor="end" font-size="11">{shown_time(highest)}</text>',
        f'<text x="{_LEFT - 4}" y="{base}" text-anchor="end" font-size="11">0</text>',
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 8}" text-anchor="end" font-size="11">{most} SMs</text>',
        line([(count, times.p99) for count, times in points], "#b6c9de"),
        line([(count, times.p50) for count, times in points], "#0969da"),
    ]
    if sms is not None and one.curve is not None:
        x, y = at(sms, one.curve.at(sms).p50)
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#bf3989"/>')
    where = f"{sms} SMs" if sms is not None else "shares the rest"
    picture = f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img">{"".join(drawn)}</svg>'
    return f"<figure><figcaption>{escape(name)}, {where}</figcaption>{picture}</figure>"
