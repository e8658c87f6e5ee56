"""The runtime: runs the programs that core declares. Private to headrace.

Other packages of headrace import only the names listed here; the subpackages (`lifecycle`, `scheduling`,
`messages`, `streams`) import from each other directly. Each name is imported when it is first used, so that `import
headrace` does not pay for the engine and the streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.core.registry import registry
from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from concurrent.futures import Future

    from headrace import gpu
    from headrace._runtime.compiled import is_compiled
    from headrace._runtime.lifecycle.accounts import Tally
    from headrace._runtime.messages.details_flow import DetailsFlow
    from headrace._runtime.messages.direct_compute import (
        DirectCompute,
        DirectStreams,
        NotDirect,
        RefusingMetadata,
    )
    from headrace._runtime.messages.message import Details, Message
    from headrace._runtime.messages.queue import Queue, UnconnectedQueue
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.group import Boundary, Group, GroupPlan
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.single_threaded import run_single_threaded
    from headrace._runtime.scheduling.workers import run_workers
    from headrace._runtime.streams.default_stream import default_stream_of, is_default
    from headrace._runtime.streams.fences import Fences, is_complete
    from headrace._runtime.streams.knobs import Knobs
    from headrace._runtime.streams.managed_stream import ManagedStream, create_event
    from headrace._runtime.streams.order import wait_for
    from headrace._runtime.streams.owners import add_owners
    from headrace._runtime.streams.run_streams import RunStreams, source_of
    from headrace._runtime.streams.stream_source import StreamSource
    from headrace.core import protocols
    from headrace.core.claim import Claim
    from headrace.core.fragment import Fragment
    from headrace.core.operator import Operator
    from headrace.core.outcome import Outcome

__all__ = [
    "Boundary",
    "Details",
    "DetailsFlow",
    "DirectCompute",
    "DirectStreams",
    "Engine",
    "Fences",
    "Group",
    "GroupPlan",
    "Knobs",
    "ManagedStream",
    "Message",
    "Node",
    "NotDirect",
    "Queue",
    "RefusingMetadata",
    "RunStreams",
    "StreamSource",
    "Tally",
    "UnconnectedQueue",
    "add_owners",
    "create_event",
    "default_stream_of",
    "is_compiled",
    "is_complete",
    "is_default",
    "run_single_threaded",
    "run_workers",
    "source_of",
    "wait_for",
]

_MODULES = {
    "Boundary": "scheduling.group",
    "Details": "messages.message",
    "DetailsFlow": "messages.details_flow",
    "DirectCompute": "messages.direct_compute",
    "DirectStreams": "messages.direct_compute",
    "Engine": "scheduling.engine",
    "Fences": "streams.fences",
    "Group": "scheduling.group",
    "GroupPlan": "scheduling.group",
    "Knobs": "streams.knobs",
    "ManagedStream": "streams.managed_stream",
    "Message": "messages.message",
    "Node": "scheduling.node",
    "NotDirect": "messages.direct_compute",
    "Queue": "messages.queue",
    "RefusingMetadata": "messages.direct_compute",
    "RunStreams": "streams.run_streams",
    "StreamSource": "streams.stream_source",
    "Tally": "lifecycle.accounts",
    "UnconnectedQueue": "messages.queue",
    "add_owners": "streams.owners",
    "create_event": "streams.managed_stream",
    "default_stream_of": "streams.default_stream",
    "is_compiled": "compiled",
    "is_complete": "streams.fences",
    "is_default": "streams.default_stream",
    "run_single_threaded": "scheduling.single_threaded",
    "run_workers": "scheduling.workers",
    "source_of": "streams.run_streams",
    "wait_for": "streams.order",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)


def _run(fragment: Fragment, claim: Claim) -> Outcome:
    from headrace._runtime.lifecycle.run import run

    return run(fragment, claim)


def _run_async(fragment: Fragment, claim: Claim) -> Future[Outcome]:
    from headrace._runtime.lifecycle.run import run_async

    return run_async(fragment, claim)


def _resume(node: protocols.Node) -> protocols.Resume:
    from headrace._runtime.scheduling.resume import Resume

    return Resume(cast("Node", node))


def _slice_of(operator: Operator) -> gpu.Share | None:
    from headrace._runtime.streams.run_streams import slice_of

    return slice_of(operator)


registry.run = _run
registry.run_async = _run_async
registry.resume = _resume
registry.slice_of = _slice_of
