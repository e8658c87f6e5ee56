"""Pipelines that end in a viewer."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.operators import HolovizOp
from tests.harness import App, Step, greedy, source


def view(
    messages: list[Any], extra: dict[str, list[Any]] | None = None, **parameters: Any
) -> tuple[Any, dict[str, Any]]:
    """Run a viewer on messages; return it, and what each of its outputs emitted.

    Parameters
    ----------
    messages
        The messages at `receivers`.
    extra
        The messages at other inputs.
    """
    emitted: dict[str, list[Any]] = {}
    made: list[HolovizOp] = []

    def compose(app: Any) -> None:
        viewer = HolovizOp(app, **{"width": 20, "height": 10, **parameters})
        made.append(viewer)
        # The other inputs first: a viewer does not wait for them.
        for port, values in (extra or {}).items():
            app.add_flow(source(app, values, name=port), viewer, {("out", port)})
        app.add_flow(source(app, messages), viewer, {("out", "receivers")})
        for port in viewer.spec.outputs:
            kept = emitted[port] = []
            keeper = Step(
                app,
                inputs=["in"],
                body=lambda self, i, o, kept=kept: kept.append(i.receive("in")),
                name=f"of_{port}",
            )
            app.add_flow(viewer, keeper, {(port, "in")})

    App(compose, greedy).run()
    return made[0], emitted


def pictures(
    messages: list[Any], extra: dict[str, list[Any]] | None = None, **parameters: Any
) -> list[np.ndarray]:
    """Return the pictures that a viewer without a window emits."""
    _, emitted = view(messages, extra, headless=True, enable_render_buffer_output=True, **parameters)
    return [np.asarray(message["render_buffer_output"]) for message in emitted["render_buffer_output"]]
