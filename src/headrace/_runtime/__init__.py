"""The runtime: runs the programs that core declares. Private to headrace.

Other packages of headrace import only the names listed here; the subpackages (`lifecycle`, `scheduling`,
`messages`, `streams`) import from each other directly. Each name is imported when it is first used, so that `import
headrace` does not pay for the engine and the streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace._runtime.compiled import is_compiled
    from headrace._runtime.lifecycle.accounts import MessageCounter
    from headrace._runtime.lifecycle.run import run, run_async
    from headrace._runtime.lifecycle.supplies import Supplies
    from headrace._runtime.messages.envelope import Details, Envelope
    from headrace._runtime.messages.fences import Fences, is_complete
    from headrace._runtime.messages.managed_stream import ManagedStream, create_event, is_default
    from headrace._runtime.messages.queue import Queue, UnconnectedQueue
    from headrace._runtime.observer import Launches, Observer, Replays
    from headrace._runtime.scheduling.details_flow import DetailsFlow
    from headrace._runtime.scheduling.direct_compute import (
        DirectCompute,
        DirectStreams,
        NotDirect,
        RefusingMetadata,
    )
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.group import Boundary, Group, GroupPlan
    from headrace._runtime.scheduling.host_attributes import HostAttributes
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.streams.default_stream import default_stream_of
    from headrace._runtime.streams.knobs import Knobs, write_knobs
    from headrace._runtime.streams.order import wait_for
    from headrace._runtime.streams.owners import add_owners
    from headrace._runtime.streams.run_streams import RunStreams, slice_of, source_of
    from headrace._runtime.streams.stream_source import StreamSource

__all__ = [
    "Boundary",
    "Details",
    "DetailsFlow",
    "DirectCompute",
    "DirectStreams",
    "Engine",
    "Envelope",
    "Fences",
    "Group",
    "GroupPlan",
    "HostAttributes",
    "Knobs",
    "Launches",
    "ManagedStream",
    "MessageCounter",
    "Node",
    "NotDirect",
    "Observer",
    "Queue",
    "RefusingMetadata",
    "Replays",
    "RunStreams",
    "StreamSource",
    "Supplies",
    "UnconnectedQueue",
    "add_owners",
    "create_event",
    "default_stream_of",
    "is_compiled",
    "is_complete",
    "is_default",
    "run",
    "run_async",
    "slice_of",
    "source_of",
    "wait_for",
    "write_knobs",
]

_MODULES = {
    "Boundary": "scheduling.group",
    "Details": "messages.envelope",
    "DetailsFlow": "scheduling.details_flow",
    "DirectCompute": "scheduling.direct_compute",
    "DirectStreams": "scheduling.direct_compute",
    "Engine": "scheduling.engine",
    "Envelope": "messages.envelope",
    "Fences": "messages.fences",
    "Group": "scheduling.group",
    "GroupPlan": "scheduling.group",
    "HostAttributes": "scheduling.host_attributes",
    "Knobs": "streams.knobs",
    "write_knobs": "streams.knobs",
    "Launches": "observer",
    "ManagedStream": "messages.managed_stream",
    "Node": "scheduling.node",
    "NotDirect": "scheduling.direct_compute",
    "Observer": "observer",
    "Queue": "messages.queue",
    "RefusingMetadata": "scheduling.direct_compute",
    "Replays": "observer",
    "RunStreams": "streams.run_streams",
    "StreamSource": "streams.stream_source",
    "Supplies": "lifecycle.supplies",
    "MessageCounter": "lifecycle.accounts",
    "UnconnectedQueue": "messages.queue",
    "add_owners": "streams.owners",
    "create_event": "messages.managed_stream",
    "default_stream_of": "streams.default_stream",
    "is_compiled": "compiled",
    "run": "lifecycle.run",
    "run_async": "lifecycle.run",
    "is_complete": "messages.fences",
    "is_default": "messages.managed_stream",
    "slice_of": "streams.run_streams",
    "source_of": "streams.run_streams",
    "wait_for": "streams.order",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
