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
    from headrace._runtime.messages.fences import Fences, is_complete
    from headrace._runtime.messages.managed_stream import ManagedStream, create_event, is_default
    from headrace._runtime.messages.message import Message
    from headrace._runtime.messages.queue import Queue, UnconnectedQueue
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.single_threaded import run_single_threaded
    from headrace._runtime.scheduling.workers import run_workers
    from headrace._runtime.streams.default_stream import default_stream_of
    from headrace._runtime.streams.run_streams import source_of
    from headrace._runtime.streams.stream_source import StreamSource
    from headrace.core import protocols
    from headrace.core.claim import Claim
    from headrace.core.fragment import Fragment
    from headrace.core.operator import Operator
    from headrace.core.outcome import Outcome

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
    "Fences": "messages.fences",
    "ManagedStream": "messages.managed_stream",
    "Message": "messages.message",
    "Node": "scheduling.node",
    "Queue": "messages.queue",
    "StreamSource": "streams.stream_source",
    "Tally": "lifecycle.accounts",
    "UnconnectedQueue": "messages.queue",
    "create_event": "messages.managed_stream",
    "default_stream_of": "streams.default_stream",
    "is_compiled": "compiled",
    "is_complete": "messages.fences",
    "is_default": "messages.managed_stream",
    "run_single_threaded": "scheduling.single_threaded",
    "run_workers": "scheduling.workers",
    "source_of": "streams.run_streams",
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
