"""The progress of a program in parts: what each process says of its part, put together by the driver.

Nobody counts until somebody asks. `ProgressOfParts.find` asks all parts at once, and each answers from the thread
that listens to the driver, so a busy operator delays no answer. A part that does not answer in time, because it is
frozen or a call holds its interpreter lock, counts as it did when it last answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.graph import is_source
from headrace.core.outcome import Progress, count_limits, fraction_of, progress_of, time_fraction
from headrace.parts.cut_flow import FlowCounts, under_way

if TYPE_CHECKING:
    from headrace.parts.calls import Calls
    from headrace.parts.cut import Cut
    from headrace.parts.cut_flow import CutFlow

_PATIENCE = 1.0  # seconds for an answer


@dataclass(frozen=True, slots=True)
class PartProgress:
    """What a part has done so far.

    Attributes
    ----------
    progress
        The progress of its operators and links.
    limits
        The numbers of computes after which its sources end.
    of_time
        The part of the duration of the run that is over.
    flows
        What its ends of the flows between parts have seen.
    """

    progress: Progress
    limits: Mapping[str, int | None] = field(default_factory=dict)
    of_time: float | None = None
    flows: Mapping[str, FlowCounts] = field(default_factory=dict)

    @classmethod
    def of(cls, cut: Cut) -> PartProgress:
        """Return the progress of a part; from any thread."""
        application = cut.application
        return cls(
            progress_of(application),
            count_limits(application.graph),
            time_fraction(application._headrace.engine),
            cut.counts(),
        )


def merge_progress(
    application: str,
    is_running: bool,
    operators: Sequence[Any],
    flows: Sequence[CutFlow],
    parts: Mapping[str, PartProgress],
) -> Progress:
    """Return the progress of a program, which has the operators of all parts and no links.

    Those that began in the run are behind those that were composed.
    """
    known = [part.progress for part in parts.values()]
    links = {flow.name for flow in flows}
    counts = {name: count for each in known for name, count in each.computes.items() if name not in links}
    composed = [operator.name for operator in operators if operator.name in counts]
    computes = {name: counts[name] for name in dict.fromkeys((*composed, *counts))}
    names = {*computes, *(operator.name for operator in operators)}
    of_time = [part.of_time for part in parts.values() if part.of_time is not None]
    limits = {name: limit for part in parts.values() for name, limit in part.limits.items()}

    def joined(what: str, has_port: bool = False) -> dict[str, Any]:
        return {
            name: value
            for each in known
            for name, value in getattr(each, what).items()
            if (name.rpartition(".")[0] if has_port else name) in names
        }

    found = Progress(
        application,
        is_running,
        computes,
        tuple(operator.name for operator in operators if is_source(operator)) if parts else (),
        joined("waiting", True),
        joined("dropped", True),
        joined("computing"),
        joined("faults"),
        fraction_of(max(of_time, default=None), limits, computes) if is_running else None,
        joined("drop_reasons", True),
    )
    for flow in flows:
        sender, receiver = (
            part.flows.get(flow.name) if (part := parts.get(name)) is not None else None
            for name in (flow.source, flow.target)
        )
        if sender is not None:
            if is_running:
                _add(found.waiting, flow.input, sender.waiting + under_way(sender, receiver))
            _add(found.dropped, flow.input, sender.dropped)
    return found


def _add(counts: dict[str, int], port: str, count: int) -> None:
    if count > 0:
        counts[port] = counts.get(port, 0) + count


class ProgressOfParts:
    """The progress of a run, for any thread of the driver.

    Parameters
    ----------
    application
        The application, as the driver has composed it.
    flows
        The flows between its parts.
    alive
        Returns the parts that can be asked.
    """

    def __init__(
        self, application: Any, flows: Sequence[CutFlow], alive: Callable[[], Collection[str]]
    ) -> None:
        self._name = application.name
        self._operators = list(application.graph)
        self._flows = flows
        self._alive = alive
        self._parts: dict[str, PartProgress] = {}
        self.calls: Calls | None = None
        """Asks the parts, while they run."""

    def find(self) -> Progress:
        """Return the progress of now, or else of the end; from any thread."""
        calls = self.calls
        if calls is not None and not calls.is_here:
            answers = [calls.call(part, "progress") for part in self._alive()]
            waits.wait_for_futures(answers, _PATIENCE)
        parts = dict(self._parts)
        return merge_progress(self._name, self.calls is not None, self._operators, self._flows, parts)

    def note(self, part: str, progress: PartProgress) -> None:
        """Note what a part says."""
        self._parts[part] = progress

    def leave(self, part: str, progress: PartProgress | None = None) -> None:
        """Note that a part has ended with this progress, or is lost."""
        if progress is not None:
            self._parts[part] = replace(
                progress, progress=replace(progress.progress, waiting={}, computing={})
            )
