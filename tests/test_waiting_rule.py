"""All of headrace waits through `headrace.waits`, so that Ctrl-C ends every wait of the main thread.

Names are followed, not values: a name that is bound to a lock, an event, a thread or the like anywhere in the
package stands for one everywhere.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.harness.sources import parse

PACKAGE = Path(__file__).parents[1] / "src" / "headrace"

# The methods that wait, by the type of the object.
LOCK, QUEUE, FUTURE, EXECUTOR = {"acquire"}, {"get", "put", "join"}, {"result", "exception"}, {"shutdown"}
WAITING = {
    "threading.Lock": LOCK,
    "threading.RLock": LOCK,
    "threading.Semaphore": LOCK,
    "threading.BoundedSemaphore": LOCK,
    "threading.Condition": {"acquire", "wait", "wait_for"},
    "threading.Event": {"wait"},
    "threading.Barrier": {"wait"},
    "threading.Thread": {"join"},
    "queue.Queue": QUEUE,
    "queue.SimpleQueue": QUEUE,
    "select.poll": {"poll"},
    "Future": FUTURE,
    "OutcomeFuture": FUTURE,
    "Executor": EXECUTOR,
    "ThreadPoolExecutor": EXECUTOR,
}

WORKER = "only a worker's thread gets here; what it waits for is short"
ALLOWED = {
    ("application/running.py", "Running._wait_until_begun"): "an OutcomeFuture waits through waits",
    ("application/running.py", "Running._end"): "a future of asyncio that is done",
    ("application/running.py", "Running._conclude"): "the future is done",
    ("core/async_function.py", "AsyncFunctionOperator._cancel_calls"): "awaited on the event loop",
    ("core/async_function.py", "LoopThread.call"): "the future is done",
    ("_runtime/scheduling/ready_queue.py", "Parker.__init__"): "the lock is new",
    ("_runtime/scheduling/watchdog.py", "Watchdog.__init__"): "the lock is new",
    ("_runtime/lifecycle/tear_down.py", "StopTimeout.__init__"): "the lock is new",
    ("_runtime/scheduling/ready_queue.py", "Parker.park"): "on other threads than the main thread, and often",
    ("_runtime/scheduling/workers.py", "WorkerThread.__init__"): "the locks are new",
    ("_runtime/scheduling/waiting.py", "WaitingWorkers._park_without"): WORKER,
    (
        "gpu/cuda/callbacks.py",
        "_WaiterThreads._serve",
    ): "a thread of its own, which ends when it is idle for long",
    ("gpu/cuda/callbacks.py", "_WaiterThreads.add"): "the queue has no limit",
    ("gpu/cuda/callbacks.py", "_WaiterThreads.stop"): "the queue has no limit",
    ("_web/live_server.py", "LiveServer.__init__"): "the future is done",
    ("gpu/sim/timeline.py", "Timeline._regain_lock"): "takes the lock back, as a `with` would",
    ("gpu/sim/timeline.py", "Timeline.notify"): "limited; a signal handler may be the caller",
    ("operators/inference.py", "_call_together"): "the futures are done",
    ("cli/graph.py", "of_composed"): "the future is done",
    ("cli/stop.py", "_ends"): "limited as `waits` says, and repeated",
    ("link/channel.py", "Channel._ready"): "limited as `waits` says, and repeated",
    ("parts/calls.py", "Calls.set_value"): "the future is done",
    ("parts/outcomes.py", "ProgressOfParts._note"): "the future is done",
    ("parts/worker.py", "Worker._await"): "the future is done",
    ("operators/inference.py", "InferenceOp.stop"): "the threads are idle: every compute waits for its calls",
    ("topics/topic_end.py", "_wait"): "a thread of its own, which `close` ends",
    ("video/v4l2_camera.py", "VideoDevice.wait"): "a thread of its own, which `wake` ends",
    ("link/listener.py", "Listener._run"): "a thread of its own, which `close` ends",
}

Sources = dict[str, str]
Found = tuple[str, str, int, str]


@cache
def found_in_the_package() -> list[Found]:
    """Return the direct waits of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return list(direct_waits({str(file.relative_to(PACKAGE)): file.read_text() for file in files}))


def last_name(node: ast.AST) -> str:
    """Return the name of a variable or attribute, or ""."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def kinds_in(node: ast.AST | None) -> set[str]:
    """Return the types that a function creates, or that an annotation names."""
    if isinstance(node, ast.BinOp):  # one type or another
        return kinds_in(node.left) | kinds_in(node.right)
    if isinstance(node, ast.Subscript):
        return kinds_in(node.value)
    name = last_name(node) if node is not None else ""
    if isinstance(node, ast.Attribute):
        name = f"{last_name(node.value)}.{name}"
    return {name} & set(WAITING)


def bindings(sources: Sources) -> dict[str, set[str]]:
    """Return the types that each name stands for, somewhere in the package."""
    bound: dict[str, set[str]] = defaultdict(set)
    a_type = re.compile(rf"\b({'|'.join(map(re.escape, WAITING))})\b")
    for source in filter(a_type.search, sources.values()):
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    bound[last_name(target)] |= kinds_in(node.value.func)
            elif isinstance(node, ast.AnnAssign):
                bound[last_name(node.target)] |= kinds_in(node.annotation)
            elif isinstance(node, ast.arg):
                bound[node.arg] |= kinds_in(node.annotation)
    return bound


def functions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Return every node with the function that it is in."""
    following = [("", tree)]
    while following:
        where, node = following.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".lstrip(".")
        yield where, node
        following += [(where, child) for child in ast.iter_child_nodes(node)][::-1]


def returns_at_once(call: ast.Call) -> bool:
    """Return whether a call only tries: ``acquire(blocking=False)``, ``poll(0)``."""
    given = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "blocking")]
    return any(isinstance(one, ast.Constant) and one.value == 0 for one in given)


def direct_waits(sources: Sources) -> Iterator[Found]:
    """Return file, function, line and text of every wait that does not go through `headrace.waits`."""
    bound = bindings(sources)
    # Most sources have neither an import nor a call that could be one; to parse them takes most of the time.
    names = "|".join(name for name, kinds in bound.items() if name and kinds)
    methods = "|".join(set().union(*WAITING.values()))
    of_a_name = re.compile(
        rf"\b({names})\s*\.\s*({methods})\s*\(|\bfrom (threading|queue|select|concurrent)\b"
    )
    of_a_value = re.compile(rf"[^\w\s]\s*\.\s*({methods})\s*\(")
    for path, source in sources.items():
        may_wait = of_a_name.search(source) or (bound.get("") and of_a_value.search(source))
        if path == "waits.py" or not may_wait:
            continue
        for function, node in functions(parse(source)):
            if isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                if names & {*WAITING, "concurrent.futures.wait", "concurrent.futures.as_completed"}:
                    yield path, function, node.lineno, ast.unparse(node)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                kinds = bound.get(last_name(node.func.value), ())
                if any(node.func.attr in WAITING[kind] for kind in kinds) and not returns_at_once(node):
                    yield path, function, node.lineno, ast.unparse(node)


def test_every_wait_goes_through_waits() -> None:
    wrong = [
        f"src/headrace/{path}:{line}: {text} in {function}; use headrace.waits, or say in ALLOWED why not"
        for path, function, line, text in found_in_the_package()
        if (path, function) not in ALLOWED
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_nothing_is_allowed_that_is_not_there() -> None:
    found = {(path, function) for path, function, _, _ in found_in_the_package()}
    assert set(ALLOWED) - found == set()


def test_a_direct_wait_is_found() -> None:
    planted = """if True:
        import threading, queue, select
        from concurrent.futures import Future, wait
        from threading import Event, current_thread

        class Camera:
            def __init__(self):
                self._changed = threading.Condition()
                self._ended: threading.Event | None = None
                self._thread = threading.Thread(target=self.work)

            def close(self, pending: Future[int], room: threading.Semaphore):
                with self._changed:
                    self._changed.wait()
                    self._changed.wait_for(lambda: True)
                    self._changed.wait(self.timeout)
                self._ended.wait(PATIENCE)
                self._thread.join()
                pending.result()
                room.acquire()
                frames = queue.SimpleQueue()
                frames.get()
                files = select.poll()
                files.poll()
                room.acquire(blocking=False)
                room.acquire(False)
                files.poll(0)
                self.stream.wait(self.event)
                ", ".join(self.names)
                self.names.get("a")
    """
    sources = {"camera.py": planted, "waits.py": planted}
    found = [(function, text) for _, function, _, text in direct_waits(sources)]
    assert found == [
        ("", "from concurrent.futures import Future, wait"),
        ("", "from threading import Event, current_thread"),
        *(
            ("Camera.close", text)
            for text in (
                "self._changed.wait()",
                "self._changed.wait_for(lambda: True)",
                "self._changed.wait(self.timeout)",
                "self._ended.wait(PATIENCE)",
                "self._thread.join()",
                "pending.result()",
                "room.acquire()",
                "frames.get()",
                "files.poll()",
            )
        ),
    ]
