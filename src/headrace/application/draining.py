"""Draining: the sources end, and what is under way is computed to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.graph import is_source

if TYPE_CHECKING:
    from headrace.core.composition import Composition


def drain(fragment: Composition, *, closes_results: bool = False) -> None:
    """End the sources of a run that has begun; feeds end after the frames that wait in them."""
    from headrace.operators import FeedOp, ResultsOp

    for operator in list(fragment.graph):
        if isinstance(operator, FeedOp):
            operator.feed.close()
        elif isinstance(operator, ResultsOp):
            if closes_results:
                operator.results.close()
        elif is_source(operator):
            operator.stop_execution()
    fragment._headrace.run_control.resume()
