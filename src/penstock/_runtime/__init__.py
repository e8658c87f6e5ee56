"""The runtime: runs the programs that core declares. Private to penstock.

Other packages of penstock import only the names listed here; the subpackages (`lifecycle`, `scheduling`,
`messages`, `streams`) import from each other directly. Each name is imported when it is first used, so that `import
penstock` does not pay for the engine and the streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.core.registry import registry
from penstock.lazy import lazy_getattr

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock import gpu
    from penstock._runtime.compiled import is_compiled
    from penstock._runtime.lifecycle.accounts import Tally
    from penstock._runtime.messages.message import Message
    from penstock._runtime.messages.queue import Queue, UnconnectedQueue
    from penstock._runtime.scheduling.engine import Engine
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.scheduling.single_threaded import run_single_threaded
    from penstock._runtime.scheduling.workers import run_workers
    from penstock._runtime.streams.default_stream import default_stream_of, is_default
    from penstock._runtime.streams.fences import Fences, is_complete
    from penstock._runtime.streams.managed_stream import ManagedStream, create_event
    from penstock._runtime.streams.run_streams import source_of
    from penstock._runtime.streams.stream_source import StreamSource
    from penstock.core import protocols
    from penstock.core.claim import Claim
    from penstock.core.fragment import Fragment
    from penstock.core.operator import Operator
    from penstock.core.outcome import Outcome

__all__ = [
    "Engine",
    "Fences",
    "ManagedStream",
    "Message",
    "Node",
    "Queue",
    "StreamSource",
    "Tally",
    "UnconnectedQueue",
    "create_event",
    "default_stream_of",
    "is_compiled",
    "is_complete",
    "is_default",
    "run_single_threaded",
    "run_workers",
    "source_of",
]

_MODULES = {
    "Engine": "scheduling.engine",
    "Fences": "streams.fences",
    "ManagedStream": "streams.managed_stream",
    "Message": "messages.message",
    "Node": "scheduling.node",
    "Queue": "messages.queue",
    "StreamSource": "streams.stream_source",
    "Tally": "lifecycle.accounts",
    "UnconnectedQueue": "messages.queue",
    "create_event": "streams.managed_stream",
    "default_stream_of": "streams.default_stream",
    "is_compiled": "compiled",
    "is_complete": "streams.fences",
    "is_default": "streams.default_stream",
    "run_single_threaded": "scheduling.single_threaded",
    "run_workers": "scheduling.workers",
    "source_of": "streams.run_streams",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__ = lazy_getattr(globals(), _MODULES)


def _run(fragment: Fragment, claim: Claim) -> Outcome:
    from penstock._runtime.lifecycle.run import run

    return run(fragment, claim)


def _run_async(fragment: Fragment, claim: Claim) -> Future[Outcome]:
    from penstock._runtime.lifecycle.run import run_async

    return run_async(fragment, claim)


def _resume(node: protocols.Node) -> protocols.Resume:
    from penstock._runtime.scheduling.resume import Resume

    return Resume(cast("Node", node))


def _slice_of(operator: Operator) -> gpu.Share | None:
    from penstock._runtime.streams.run_streams import slice_of

    return slice_of(operator)


registry.run = _run
registry.run_async = _run_async
registry.resume = _resume
registry.slice_of = _slice_of
