"""The operator's stream is current in compute, start and stop, for every library, and it is always the same one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace import CountCondition, gpu, op
from headrace.gpu.backend import active, is_chosen
from headrace.gpu.current import entered_stream, leave, remember_stream, thread
from headrace.gpu.lasting_stream import LastingStream
from headrace.resources import CudaStreamPool
from headrace.tensor import register_library
from tests.harness import MS, MakeScheduler, Step, greedy, run
from tests.harness.internals import node_of
from tests.harness.libraries import Array, Arrays, here, new_array, use_arrays

FRAMES = 12


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    use_arrays(monkeypatch)


def chain(
    middle: Callable[[Array], Any],
    last: Callable[[Any], Any],
    scheduler: MakeScheduler = greedy,
    make: Callable[[], Any] = lambda: new_array(),
    per: str = "operator",
) -> Any:
    """Run three functions in a row."""

    def compose(app: Any) -> None:
        app.stream_per = per
        app.made = [
            op(outputs="out")(make)(app, CountCondition(app, FRAMES), name="first"),
            op(middle)(app, name="middle"),
            op(outputs=())(last)(app, name="last"),
        ]
        app.add_flow(*app.made[:2])
        app.add_flow(*app.made[1:])

    return run(compose, scheduler)


@pytest.mark.usefixtures("arrays")
def test_it_is_current_in_start_compute_and_stop_and_what_receive_cuda_stream_returns(
    scheduler: MakeScheduler,
) -> None:
    found: dict[str, list[int]] = {"source": [], "sink": []}

    class Noting(Step):
        def note(self) -> None:
            assert here.stream == gpu.current_stream()
            found[self.name].append(int(here.stream))

        def start(self) -> None:
            self.note()

        def stop(self) -> None:
            self.note()

    def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.note()
        assert context.allocate_cuda_stream("any name") == here.stream
        op_output.emit(new_array(), "out")

    def take(self: Any, op_input: Any, op_output: Any) -> None:
        self.note()
        op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        assert stream == here.stream
        assert stream.__cuda_stream__() == (0, int(stream))

    def compose(app: Any) -> None:
        source = Noting(app, CountCondition(app, FRAMES), outputs=["out"], body=send, name="source")
        app.add_flow(source, Noting(app, inputs=["in"], body=take, name="sink"))

    run(compose, scheduler)
    assert here.stream is gpu.current_stream() is None  # and put back afterwards
    assert [len(streams) for streams in found.values()] == [FRAMES + 2] * 2
    assert [len(set(streams)) for streams in found.values()] == [1, 1]
    assert found["source"] != found["sink"]


@pytest.mark.usefixtures("arrays")
@pytest.mark.parametrize("per", ["operator", "branch", "program"])
def test_plain_code_reads_right_frames(scheduler: MakeScheduler, per: str) -> None:
    seen: list[int] = []
    numbers = iter(range(FRAMES))

    def copy(frame: Array) -> Array:
        numbers_read: list[int] = []
        frame.read(numbers_read, MS)
        copied = new_array()
        number = len(copies)
        copies.append(number)
        return copied.fill(number, MS)

    copies: list[int] = []
    chain(
        copy, lambda frame: frame.read(seen, 2 * MS), scheduler, lambda: new_array().fill(next(numbers)), per
    )
    assert seen == list(range(FRAMES))


@pytest.mark.usefixtures("arrays")
def test_a_library_that_leaves_another_stream_current_has_the_operators_own_in_the_next_compute(
    scheduler: MakeScheduler,
) -> None:
    found: list[int] = []
    other = gpu.StreamHandle(gpu.Device(0).create_stream())

    def middle(frame: Array) -> Array:
        found.append(int(here.stream))
        here.stream = other
        return frame

    chain(middle, lambda frame: None, scheduler)
    assert len(found) == FRAMES
    assert len(set(found)) == 1
    assert int(other) not in found


@pytest.mark.usefixtures("no_device_yet")
@pytest.mark.parametrize("how", ["imported", "registered"])
def test_the_first_library_of_a_run_has_the_stream_of_every_operator_from_its_next_compute_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheduler: MakeScheduler, how: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    library = "import types\nclass ndarray: pass\ncuda = types.SimpleNamespace(get_current_stream=None)\n"
    (tmp_path / "cupy.py").write_text(library)
    use_arrays(monkeypatch)
    from headrace.gpu import array_libraries
    from headrace.tensor import libraries

    libraries._registry.on_gpu = libraries._registry.on_simulated = []
    for name in ("cupy", "headrace.tensor.libraries.cupy"):  # forgotten after the test
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        del sys.modules[name]
    notice = libraries._ImportNotice()
    monkeypatch.setattr(array_libraries, "when_imported", notice.add)
    monkeypatch.setattr(libraries, "_import_notice", notice)
    found: dict[str, list[Any]] = {"middle": [], "last": []}
    changed: list[int] = []

    def note(name: str) -> None:
        found[name].append(entered_stream())
        changed.append(notice in sys.meta_path)

    def middle(frame: int) -> int:
        note("middle")
        if frame == FRAMES // 2:
            if how == "imported":
                import cupy  # noqa: F401 (the import is what counts)
            else:
                register_library(Arrays())
        return frame

    numbers = iter(range(FRAMES))
    chain(middle, lambda frame: note("last"), scheduler, lambda: next(numbers))
    assert notice not in sys.meta_path
    assert all(changed)
    middle_streams, last_streams = found["middle"], found["last"]
    assert middle_streams[: FRAMES // 2 + 1] == [None] * (FRAMES // 2 + 1)
    assert len({int(stream) for stream in middle_streams[FRAMES // 2 + 1 :]}) == 1
    assert last_streams[-1] not in (None, middle_streams[-1])


@pytest.mark.usefixtures("no_device_yet")
def test_a_program_without_a_device_pays_nothing_for_streams_after_its_first_computes(
    scheduler: MakeScheduler,
) -> None:
    streams: list[Any] = []
    app = chain(
        lambda frame: streams.append(entered_stream()) or frame, lambda frame: None, scheduler, lambda: 1
    )
    assert not is_chosen()
    assert streams == [None] * FRAMES
    for operator in app.made:
        node = node_of(operator)
        assert node.compute == operator.compute
        assert node.lifetimes is None
        assert not any(port.stamp for port in node.output.ports.values())


@pytest.mark.usefixtures("no_device_yet")
@pytest.mark.parametrize("asks", ["start", 1, FRAMES // 2])
@pytest.mark.parametrize("how", ["current_stream", "receive_cuda_stream", "a device"])
def test_whatever_first_asks_for_a_device_gives_every_operator_its_stream(
    scheduler: MakeScheduler, how: str, asks: Any
) -> None:
    """In the compute that asks, if it is the first of its operator, and from the next one on in any case."""
    found: dict[str, list[Any]] = {"asking": [], "last": []}

    def ask(op_input: Any) -> None:
        if how == "receive_cuda_stream" and op_input is not None:
            op_input.receive_cuda_stream("in")
        elif how == "a device":
            active()
        else:
            gpu.current_stream()

    class Asking(Step):
        def start(self) -> None:
            super().start()
            if asks == "start":
                ask(None)
                found["asking"].append(entered_stream())

    def asking(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        if self.ticks == asks:
            ask(op_input)
        found["asking"].append(entered_stream())
        op_output.emit(1, "out")

    def last(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        found["last"].append(entered_stream())

    def compose(app: Any) -> None:
        first = Step(
            app, CountCondition(app, FRAMES), outputs=["out"], body=lambda s, i, o: o.emit(1), name="first"
        )
        middle = Asking(app, inputs=["in"], outputs=["out"], body=asking, name="asking")
        app.add_flow(first, middle, Step(app, inputs=["in"], body=last, name="last"))

    run(compose, scheduler)
    begins = asks if asks == FRAMES // 2 else 0
    streams = found["asking"]
    assert streams[:begins] == [None] * begins
    assert len(set(map(int, streams[begins:]))) == 1
    assert found["last"][-1] not in (None, streams[-1])


def test_a_pool_declares_streams_without_any_library() -> None:
    streams: list[Any] = []

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app)
        one = op(outputs="out")(lambda: 1)(app, CountCondition(app, 3), pool, name="one")
        app.add_flow(one, op(lambda x: streams.append(gpu.current_stream()))(app, pool, name="other"))

    run(compose)
    assert len(streams) == 3
    assert len({int(stream) for stream in streams}) == 1


def test_what_was_current_before_a_run_is_again_after_it_although_another_run_was_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_arrays(monkeypatch)
    before, shared, inner = [gpu.StreamHandle(gpu.Device(0).create_stream()) for _ in range(3)]
    here.stream = before
    try:
        LastingStream(shared).enter(thread.current)
        restore = remember_stream()
        LastingStream(inner).enter(thread.current)
        leave()
        assert here.stream is before
        restore()
        assert here.stream is shared
        LastingStream(shared).enter(thread.current)
        leave()
        assert here.stream is before
    finally:
        here.stream = None
