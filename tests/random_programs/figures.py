"""What the tests of figures have in common."""

from __future__ import annotations

from typing import Any

from headrace.observe import Dashboard

FATES = ("arrived", "late", "failed", "dropped", "lost")


def told_by_a_page(app: Any, page: list[dict[str, Any]]) -> None:
    """Add what a page is told at the end of the run, with the graph."""

    class Told(Dashboard):
        def begin(self, run: Any) -> None:
            super().begin(run)
            self._graph = [{"name": operator.name} for operator in run.operators]

        def end(self, outcome: Any) -> None:
            page.append({**self._page.figures(), "graph": self._graph})
            super().end(outcome)

    Told(app, announce=lambda url: None)
