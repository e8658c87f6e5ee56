"""Tracker: how long messages take, for an application or for each of its fragments.

A message that is read again from an asynchronous buffer has a path of its own, as on the SDK: from ``tx_old``, if
`tx` sent it. Its time begins here when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headrace.core import IOSpec
from headrace_holoscan.core.data_flow_tracker import DataFlowTracker

if TYPE_CHECKING:
    from headrace.observe import Flows, Path, RunInfo


class FlowTracker(DataFlowTracker):
    """The tracker of an application or a fragment."""

    def begin(self, run: RunInfo) -> None:
        """Let a path begin and end at an operator that only reads again."""
        super().begin(run)
        for one in run.operators:
            if one.is_sink and _senders(one):
                one.is_path = True

    def _name(self, path: Path) -> str:
        old = "".join(f"{sender}_old," for sender in _senders(path.operators[0]))
        return old + super()._name(path)


def _senders(operator: Any) -> list[str]:
    """Return the operators behind the asynchronous buffers of an operator that receives from nothing else."""
    declared = operator.node.operator
    flows = declared._headrace.incoming
    ports = declared.spec.every_input
    latest = IOSpec.QueuePolicy.LATEST
    found = [flow.source.name for flow in flows if latest in (flow.policy, ports[flow.input].policy)]
    return found if len(found) == len(flows) else []


class PartTracker(FlowTracker):
    """The tracker of one fragment of an application: the paths that end there, or leave it there."""

    spans_parts = False

    def __init__(self, part: str, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._part = part
        self._operators: Sequence[Any] = ()

    def attach(self, fragment: Any) -> None:
        """Track every later run of the application, beside the trackers of its other fragments."""
        others = [each for each in fragment._headrace.watchers if getattr(each, "_part", None) != self._part]
        super().attach(fragment)
        fragment._headrace.watchers = [*others, self]

    def begin(self, run: RunInfo) -> None:
        """Let paths end where they leave the fragment, too."""
        super().begin(run)
        self._operators = run.operators
        for one in run.operators:
            operator = one.node.operator
            if self._is_mine(one) and any(
                flow.target.fragment is not operator.fragment for flow in operator._headrace.outgoing
            ):
                one.is_probe = one.is_path = True

    def flowed(self, flows: list[Flows]) -> None:
        """Count messages that reached the end of their paths in this fragment."""
        super().flowed([each for each in flows if self._is_mine(each.path.operators[-1])])

    def _source_messages(self) -> dict[str, int]:
        mine = filter(self._is_mine, self._operators)
        sources = [one for one in mine if one.node.operator._headrace.outgoing]
        counts = super()._source_messages()
        return {
            f"{_full_name(one)}->{output.name.rpartition('.')[2]}": output.count
            for one in sources
            for output in one.outputs
            if f"{one.name}->{output.name.rpartition('.')[2]}" in counts
        }

    def _is_mine(self, operator: Any) -> bool:
        return bool(operator.node.operator.fragment.name == self._part)

    def _name(self, path: Path) -> str:
        return ",".join(_full_name(one) for one in path.operators)


def _full_name(operator: Any) -> str:
    found: str = operator.node.operator.fragment._headrace.full_name(operator.name)
    return found


def track_parts(application: Any, *args: Any, **options: Any) -> dict[str, DataFlowTracker]:
    """Return a tracker for each fragment of an application, by name; they track every later run.

    The arguments after the application are those of :class:`DataFlowTracker`.
    """
    if not application.fragment_graph.fragments:
        application.compose_graph()
    trackers: dict[str, DataFlowTracker] = {}
    for part in application.fragment_graph.fragments:
        trackers[part.name] = PartTracker(part.name, *args, **options)
        trackers[part.name].attach(application)
    return trackers


class Tracker:
    """Tracks an application in a ``with`` block: a tracker, or of an application of fragments one for each.

    Parameters
    ----------
    app
        The application.
    filename
        The log file; none is written unless given. The name of a fragment comes before it.
    num_buffered_messages
        The number of messages that are written at once.
    **options
        The parameters of :class:`DataFlowTracker`.
    """

    def __init__(
        self, app: Any, *, filename: str | None = None, num_buffered_messages: int = 100, **options: Any
    ) -> None:
        self._app = app
        self._file = filename, num_buffered_messages
        self._options = options
        self._block = ExitStack()

    def __enter__(self) -> Any:
        app, (filename, buffered) = self._app, self._file
        app.compose_graph()
        if not app.fragment_graph.fragments:
            tracker: DataFlowTracker = FlowTracker(**self._options)
            tracker.attach(app)
            trackers = {"": tracker}
        else:
            trackers = track_parts(app, **self._options)
        for name, each in trackers.items():
            self._block.enter_context(each)
            if filename is not None:
                each.enable_logging(f"{name}_{filename}" if name else filename, buffered)
        return trackers.get("", trackers)

    def __exit__(self, *error: Any) -> None:
        self._block.close()
