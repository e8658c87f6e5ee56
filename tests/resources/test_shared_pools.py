"""Pools that several runs share: made once, closed after the last of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace.core.errors import StreamError
from headrace.gpu import sim
from headrace.resources import CudaGreenContext, CudaStreamPool
from tests.harness import MS, App, Step, launch, run
from tests.resources.green_contexts import green_pool

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[gpu.Partitions]:
    """The partitions that were made, each time the device was divided."""
    made: list[Any] = []
    original = gpu.partition

    def partition(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not kwargs.get("dry_run"):
            made.append(result)
        return result

    monkeypatch.setattr(gpu, "partition", partition)
    return made


def test_a_device_is_divided_once_for_runs_that_start_at_once(divided: list[gpu.Partitions]) -> None:
    for _ in range(20):
        pool = green_pool(None)
        start = threading.Barrier(4)
        leases: list[Any] = []

        def work(pool: Any = pool, start: Any = start, leases: Any = leases) -> None:
            start.wait()
            leases.append(pool.lease())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(divided) == 1
        streams = [lease.take().stream for lease in leases]
        for lease in leases[:-1]:
            lease.close()
            assert len(divided[0]) == 3
        assert [stream.is_closed for stream in streams] == [True, True, True, False]
        leases[-1].close()
        assert streams[-1].is_closed
        assert len(divided.pop()) == 0


def sharing(pool: Any, ticks: int, start: Any = lambda: None, stop: Any = lambda: None) -> App:
    """An application that launches on a stream of a pool, and does something else when it starts or stops."""

    class Sharing(Step):
        def start(self) -> None:
            super().start()
            start()

        def stop(self) -> None:
            stop()

    def compose(app: Any) -> None:
        app.streams, app.done = [], 0

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s")
            app.streams.append(stream)

            def effect() -> None:
                app.done += 1

            launch(stream, MS, effect)

        app.add_operator(Sharing(app, CountCondition(app, ticks), pool, body=body, name="step"))

    return App(compose)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CudaStreamPool(None),
        lambda: CudaStreamPool(None, cuda_green_context=CudaGreenContext(None, green_pool(None), 0)),
        lambda: CudaGreenContext(None, green_pool(None), 0),
        lambda: green_pool(None),
    ],
    ids=["streams", "streams of a slice", "slice", "slices"],
)
def test_a_pool_outlives_the_first_of_two_runs_that_share_it(
    make: Any, divided: list[gpu.Partitions]
) -> None:
    pool = make()
    inner = sharing(pool, 2)
    outer = sharing(pool, 3, start=inner.run)
    outer.run()
    assert (outer.done, inner.done) == (3, 2)
    assert len({int(stream) for stream in outer.streams}) == 1
    assert all(stream.stream.is_closed for stream in (*outer.streams, *inner.streams))
    assert len(divided) == (0 if type(pool) is CudaStreamPool and pool.stands_on is None else 1)
    assert all(len(partitions) == 0 for partitions in divided)


def test_a_run_that_ended_leaves_its_streams_to_the_next() -> None:
    pool = CudaStreamPool(None, reserved_size=0, max_size=2)
    taken: list[int] = []

    def run_others() -> None:
        for _ in range(4):
            other = sharing(pool, 1)
            other.run()
            taken.extend(int(stream) for stream in other.streams)

    outer = sharing(pool, 1, stop=run_others)
    outer.run()
    assert len(set(taken)) == 1
    assert len(taken) == 4
    assert int(outer.streams[0]) not in taken


def test_a_pool_that_another_run_has_emptied_is_an_error_and_is_there_again_after_that_run() -> None:
    pool = CudaStreamPool(None, reserved_size=0, max_size=1)
    other = sharing(pool, 1)

    def run_other() -> None:
        with pytest.raises(
            StreamError, match="pool 'cuda_stream_pool' has no stream left, since another run"
        ):
            other.run()

    sharing(pool, 1, stop=run_other).run()
    assert other.streams == []
    other.run()
    assert len(other.streams) == 1


def test_a_run_that_fails_to_open_a_pool_leaves_nothing_behind(
    divided: list[gpu.Partitions], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    original = sim.Context.create_stream

    def create(self: Any, options: Any = None) -> Any:
        if len(made) == 2:
            raise sim.CUDAError("CUDA_ERROR_OUT_OF_MEMORY")
        made.append(original(self, options))
        return made[-1]

    monkeypatch.setattr(sim.Context, "create_stream", create)
    context = CudaGreenContext(None, green_pool(None), 0)
    pool = CudaStreamPool(None, reserved_size=3, cuda_green_context=context)
    with pytest.raises(sim.CUDAError, match="OUT_OF_MEMORY"):
        sharing(pool, 1).run()
    assert [stream.is_closed for stream in made] == [True, True]
    assert len(divided[0]) == 0
    monkeypatch.undo()
    app = sharing(pool, 1)
    app.run()
    assert app.done == 1


def test_a_pool_that_cannot_be_closed_does_not_keep_the_others_open(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            streams.append(context.allocate_cuda_stream("s").stream)

        for n in range(3):
            app.add_operator(
                Step(app, CountCondition(app, 1), CudaStreamPool(app), body=body, name=f"step{n}")
            )

    close = sim.Stream.close

    def closing(self: sim.Stream) -> None:
        if self is streams[1]:
            raise sim.CUDAError("CUDA_ERROR_LAUNCH_FAILED")
        close(self)

    monkeypatch.setattr(sim.Stream, "close", closing)
    with pytest.raises(sim.CUDAError, match="LAUNCH_FAILED"):
        run(compose)
    assert [stream.is_closed for stream in streams] == [True, False, True]


def test_a_slice_that_compute_made_current_is_closed_after_the_run(divided: list[gpu.Partitions]) -> None:
    sim.Device(0).set_current()

    def compose(app: Any) -> None:
        slices = green_pool(app)

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            sim.Device(0).set_current(slices.partition(1).context)

        app.add_operator(Step(app, CountCondition(app, 1), slices, body=body, name="step"))

    run(compose)
    assert len(divided[0]) == 0
    assert not sim.Device(0).context.is_green
