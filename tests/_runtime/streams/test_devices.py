"""Pipelines on two devices: their streams, their default streams, the current device, the end of the run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock import CountCondition, gpu
from penstock.core.errors import StreamError
from penstock.gpu import sim
from penstock.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from penstock.schedulers import EventBasedScheduler, GreedyScheduler
from tests.harness import MS, App, MakeScheduler, Step, event_based, launch, once, run, write
from tests.harness.producers import Library


@pytest.fixture(autouse=True)
def machine() -> Iterator[sim.Machine]:
    """Two H200s in virtual time."""
    with sim.Machine("h200", devices=2) as machine:
        yield machine


def current() -> int:
    return gpu.Device().device_id


def frame_on(device_id: int, handle: Any) -> Any:
    return gpu.DeviceMemoryResource(device_id).allocate(8, stream=handle.stream)


def source(
    app: Any, device_id: int, frames: int, seconds: float = MS, *args: Any, name: str = "source"
) -> Step:
    """Fill frames on a device with 0, 1, 2 and so on, slowly."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        assert context.device_from_stream(stream) == current() == device_id
        op_output.set_cuda_stream(stream, "out")
        data = frame_on(device_id, stream)
        launch(stream, seconds, lambda out, number=self.ticks - 1: write(out, number), data)
        op_output.emit(data, "out")

    pool = CudaStreamPool(app, device_id, 1, name=f"{name}_pool")
    return Step(app, CountCondition(app, frames), pool, *args, outputs=("out",), body=body, name=name)


def sink(app: Any, device_id: int, seen: list[int], *args: Any, name: str = "sink") -> Step:
    """Read frames on a device, a while after they were received."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        assert context.device_from_stream(stream) == current() == device_id
        launch(stream, MS, lambda read: seen.append(int(read.view(np.int64)[0])), data)

    pool = CudaStreamPool(app, device_id, 1, name=f"{name}_pool")
    return Step(app, pool, *args, inputs=("in",), body=body, name=name)


def default_user(app: Any, device_id: int, body: Any, name: str) -> Step:
    """A step whose pool has no stream left, so that it is given the default stream of its device."""
    pool = CudaStreamPool(app, device_id, 1, max_size=1, name=f"{name}_pool")

    def with_default(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        context.allocate_cuda_stream("the only one")
        body(self, op_input.receive_cuda_stream("in"), context)

    step = Step(app, pool, inputs=("in",), body=with_default, name=name)
    app.add_flow(once_named(app, f"{name}_once"), step)
    return step


def once_named(app: Any, name: str) -> Step:
    return Step(
        app,
        CountCondition(app, 1),
        outputs=("out",),
        body=lambda self, i, o, c: o.emit(1, "out"),
        name=name,
    )


# -- hand-over ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0), (1, 1)])
def test_frames_are_handed_over_between_devices(scheduler: MakeScheduler, first: int, second: int) -> None:
    seen: list[int] = []
    run(lambda app: app.add_flow(source(app, first, 30), sink(app, second, seen)), scheduler)
    assert seen == list(range(30))


def test_two_flows_on_two_devices_do_not_wait_for_each_other(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    seen: dict[int, list[int]] = {0: [], 1: []}

    def compose(app: Any) -> None:
        for n in (0, 1):
            app.add_flow(
                source(app, n, 20, (n + 1) * MS, name=f"source{n}"), sink(app, n, seen[n], name=f"sink{n}")
            )

    run(compose, scheduler)
    assert seen == {0: list(range(20)), 1: list(range(20))}
    assert machine.now < 1.2 * 20 * 2 * MS  # as long as the slower one takes, not as both


def test_frames_come_back_from_a_device_that_passes_them_on(scheduler: MakeScheduler) -> None:
    seen: list[int] = []

    def compose(app: Any) -> None:
        def double(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            result = frame_on(1, stream)
            launch(stream, MS, lambda out, read: write(out, 2 * int(read.view(np.int64)[0])), result, data)
            op_output.emit(result, "out")

        middle = Step(
            app, CudaStreamPool(app, 1), inputs=("in",), outputs=("out",), body=double, name="middle"
        )
        app.add_flow(source(app, 0, 20), middle)
        app.add_flow(middle, sink(app, 0, seen))

    run(compose, scheduler)
    assert seen == [2 * number for number in range(20)]


def test_an_operator_may_work_on_the_streams_it_received_from_two_devices(scheduler: MakeScheduler) -> None:
    """It keeps what it received for both, by events of each."""
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def compose(app: Any) -> None:
        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            for n, port in enumerate("ab"):
                data = op_input.receive(port)
                (stream,) = op_input.receive_cuda_streams(port)
                assert current() == 1  # as it was at the start of compute: nothing was made current
                assert context.device_from_stream(stream) == n
                launch(
                    stream, MS, lambda read, port=port: seen[port].append(int(read.view(np.int64)[0])), data
                )

        joining = Step(app, CudaStreamPool(app, 1), inputs=("a", "b"), body=join, name="join")
        for n, port in enumerate("ab"):
            app.add_flow(source(app, n, 20, name=port), joining, {("out", port)})

    run(compose, scheduler)
    assert seen == {"a": list(range(20)), "b": list(range(20))}


@pytest.mark.parametrize("named", ["theirs", "the default one"])
@pytest.mark.parametrize("follows", [True, False])
def test_a_tensor_is_ordered_for_a_library_on_another_device(follows: bool, named: str) -> None:
    """As a library does that has streams of its own: it names one of them when it takes a tensor."""
    seen: list[int] = []

    def compose(app: Any) -> None:
        def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
            array = Library()
            launch(stream, 5 * MS, lambda: np.frombuffer(array.memory, np.int64, 1).fill(7))
            op_output.emit({"frame": array}, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            tensor = op_input.receive("in")["frame"]
            sim.Device(1).set_current()
            theirs = sim.Device(1).create_stream() if named == "theirs" else gpu.LEGACY_DEFAULT_STREAM
            if follows:
                op_input.receive_cuda_stream("in")  # of the first device
                sim.Device(1).set_current()
            tensor.__dlpack__(stream=int(theirs.handle))
            memory = tensor.owner.memory
            kernel = sim.Kernel("read", MS, lambda: seen.append(np.frombuffer(memory, np.int64, 1)[0]))
            sim.launch(theirs, sim.LaunchConfig(grid=1, block=32), kernel)
            theirs.sync()

        maker = Step(
            app, CountCondition(app, 1), CudaStreamPool(app, 0), outputs=("out",), body=make, name="make"
        )
        app.add_flow(maker, Step(app, CudaStreamPool(app, 0), inputs=("in",), body=take, name="take"))

    run(compose)
    assert seen == [7]


def test_a_tensor_made_on_the_default_stream_of_one_device_is_ordered_for_that_of_another() -> None:
    seen: list[int] = []

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            context.allocate_cuda_stream("the only one")
            stream = op_input.receive_cuda_stream("in")
            op_output.set_cuda_stream(stream, "out")
            array = Library()
            launch(stream, 5 * MS, lambda: np.frombuffer(array.memory, np.int64, 1).fill(7))
            op_output.emit({"frame": array}, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            tensor = op_input.receive("in")["frame"]
            tensor.__dlpack__(stream=1)  # the default stream of the device that is current, the second
            memory = tensor.owner.memory
            kernel = sim.Kernel("read", MS, lambda: seen.append(np.frombuffer(memory, np.int64, 1)[0]))
            sim.launch(gpu.LEGACY_DEFAULT_STREAM, sim.LaunchConfig(grid=1, block=32), kernel)
            gpu.LEGACY_DEFAULT_STREAM.sync()

        pool = CudaStreamPool(app, 0, max_size=1)
        sender = Step(app, pool, inputs=("in",), outputs=("out",), body=send, name="send")
        app.add_flow(once(app), sender)
        app.add_flow(sender, Step(app, CudaStreamPool(app, 1), inputs=("in",), body=take, name="take"))

    run(compose)
    assert seen == [7]


# -- default streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize("slow_first", [True, False])
def test_the_run_ends_when_the_default_streams_of_both_devices_are_done(
    machine: sim.Machine, scheduler: MakeScheduler, slow_first: bool
) -> None:
    done: list[int] = []

    def compose(app: Any) -> None:
        for n, seconds in ((0, 50 * MS), (1, 5 * MS)) if slow_first else ((1, 50 * MS), (0, 5 * MS)):

            def body(self: Any, stream: Any, context: Any, n: int = n, seconds: float = seconds) -> None:
                assert not stream
                assert context.device_from_stream(stream) == current() == n
                launch(stream, seconds, lambda: done.append(n))

            default_user(app, n, body, f"user{n}")

    run(compose, scheduler)
    assert sorted(done) == [0, 1]


def test_a_stream_can_be_ordered_after_the_default_stream_of_another_device(machine: sim.Machine) -> None:
    order: list[str] = []
    given: list[Any] = []

    def compose(app: Any) -> None:
        def slow(self: Any, stream: Any, context: Any) -> None:
            launch(stream, 20 * MS, lambda: order.append("default of 1"))
            given.append(stream)

        def after(self: Any, stream: Any, context: Any) -> None:
            own = context.allocate_cuda_stream("the only one")
            context.synchronize_streams([given[0], stream], own)
            assert current() == 0  # and stays so
            launch(own, MS, lambda: order.append("own of 0"))
            launch(stream, MS, lambda: order.append("default of 0"))

        default_user(app, 1, slow, "slow")
        default_user(app, 0, after, "after")

    run(compose)
    assert order == ["default of 0", "default of 1", "own of 0"]


@pytest.mark.parametrize("target", [0, 1])
def test_the_default_stream_of_a_device_can_be_ordered_after_that_of_another(target: int) -> None:
    order: list[int] = []
    given: list[Any] = []

    def compose(app: Any) -> None:
        def slow(self: Any, stream: Any, context: Any) -> None:
            launch(stream, 20 * MS, lambda: order.append(1 - target))
            given.append(stream)

        def after(self: Any, stream: Any, context: Any) -> None:
            context.synchronize_streams([*given, stream], stream)
            launch(stream, MS, lambda: order.append(target))

        default_user(app, 1 - target, slow, "slow")
        default_user(app, target, after, "after")

    run(compose)
    assert order == [1 - target, target]


def test_a_plain_0_is_the_default_stream_of_the_current_device() -> None:
    found: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, stream: Any, context: Any) -> None:
            found.append([context.device_from_stream(handle) for handle in (stream, 0, 1)])
            slow = context.allocate_cuda_stream("the only one")
            launch(slow, 20 * MS, lambda: None)
            context.synchronize_streams([int(slow)], 0)
            event = sim.Device().default_stream.record()
            assert not event.is_done
            event.sync()
            assert slow.stream.record().is_done

        for n in (0, 1):
            default_user(app, n, body, f"user{n}")

    run(compose)
    assert found == [[0, 0, 0], [1, 1, 1]]


def test_a_default_stream_that_nobody_was_given_is_not_managed() -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            with pytest.raises(StreamError, match="penstock manages .* not 0x0"):
                context.device_from_stream(0)

        app.add_operator(Step(app, CountCondition(app, 1), CudaStreamPool(app, 1), body=body, name="step"))

    run(compose)


def test_the_default_stream_of_a_device_can_be_emitted_to_the_other() -> None:
    seen: list[int] = []
    found: list[Any] = []

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, 1, max_size=1)

        def middle(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            context.allocate_cuda_stream("the only one")
            stream = op_input.receive_cuda_stream("in")
            op_output.set_cuda_stream(stream, "out")
            data = frame_on(1, stream)
            launch(stream, 5 * MS, lambda out: write(out, 7), data)
            sim.Device(0).set_current()  # an operator that goes astray is no reason for a wrong frame
            op_output.emit(data, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            (theirs,) = op_input.receive_cuda_streams("in")
            found.extend([current(), context.device_from_stream(theirs)])
            launch(
                op_input.receive_cuda_stream("in"),
                MS,
                lambda read: seen.append(int(read.view(np.int64)[0])),
                data,
            )

        step = Step(app, pool, inputs=("in",), outputs=("out",), body=middle, name="middle")
        app.add_flow(once(app), step)
        app.add_flow(step, Step(app, CudaStreamPool(app, 0), inputs=("in",), body=take, name="take"))

    run(compose)
    assert found == [0, 1]
    assert seen == [7]


def test_a_default_stream_waits_whichever_device_is_current() -> None:
    order: list[str] = []
    given: list[Any] = []

    def compose(app: Any) -> None:
        def after(self: Any, stream: Any, context: Any) -> None:
            own = context.allocate_cuda_stream("the only one")
            launch(own, 20 * MS, lambda: order.append("own of 0"))
            context.synchronize_streams([own], given[0])
            assert current() == 0
            with gpu.on_device(1):
                launch(given[0], MS, lambda: order.append("default of 1"))

        default_user(app, 1, lambda self, stream, context: given.append(stream), "first")
        default_user(app, 0, after, "after")

    run(compose)
    assert order == ["own of 0", "default of 1"]


def test_streams_that_penstock_does_not_manage_are_ordered_on_their_device() -> None:
    order: list[str] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            own = context.allocate_cuda_stream("own")
            with gpu.on_device(1):
                foreign = gpu.StreamHandle(sim.Device(1).create_stream())
                launch(foreign, 20 * MS, lambda: order.append("foreign"))
                launch(gpu.StreamHandle(gpu.LEGACY_DEFAULT_STREAM), 30 * MS, lambda: order.append("default"))
            context.synchronize_streams([int(foreign)], own)
            launch(own, MS, lambda: order.append("own"))
            with gpu.on_device(1):  # a default stream that no operator was given
                context.synchronize_streams([0], own)
            launch(own, MS, lambda: order.append("own again"))

        pool = CudaStreamPool(app, 0, stream_flags=1)
        app.add_operator(Step(app, CountCondition(app, 1), pool, body=body, name="step"))

    run(compose)
    assert order == ["foreign", "own", "default", "own again"]


def test_a_stream_is_not_ordered_after_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(sim.Stream, "wait", lambda self, other: waits.append(other))

    def compose(app: Any) -> None:
        def body(self: Any, stream: Any, context: Any) -> None:
            own = context.allocate_cuda_stream("the only one")
            context.synchronize_streams([None, own, int(own)], own)
            context.synchronize_streams([stream, 0, 1], stream)
            with gpu.on_device(0):
                foreign = gpu.StreamHandle(sim.Device(0).create_stream())
            context.synchronize_streams([foreign, int(foreign)], foreign)

        default_user(app, 1, body, "user")

    run(compose)
    assert waits == []


@pytest.mark.parametrize("device_id", [0, 1])
def test_sync_to_default_means_the_default_stream_of_the_streams_device(device_id: int) -> None:
    found: list[list[bool]] = []

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            op_input.receive_cuda_stream("in", sync_to_default=True)
            done = []
            for n in (0, 1):
                sim.Device(n).set_current()
                done.append(sim.Device(n).default_stream.record().is_done)
            found.append(done)

        pool = CudaStreamPool(app, device_id, stream_flags=1)
        app.add_flow(source(app, 1 - device_id, 1), Step(app, pool, inputs=("in",), body=take, name="take"))

    run(compose)
    assert found == [[device_id != 0, device_id != 1]]


def test_an_ambient_operator_without_a_stream_runs_on_the_default_stream_of_its_device(
    scheduler: MakeScheduler,
) -> None:
    seen: list[tuple[int, int]] = []

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = gpu.current_stream()
            assert stream == 0
            device_id = context.device_from_stream(stream)
            assert device_id == stream.device_id == current()
            seconds = MS / 10 if self.ticks % 2 else 5 * MS
            launch(stream, seconds, lambda read: seen.append((device_id, int(read.view(np.int64)[0]))), data)

        for n in (0, 1):
            pool = CudaStreamPool(app, n, stream_flags=1, max_size=1, name=f"pool{n}")
            app.add_operator(
                Step(
                    app,
                    CountCondition(app, 1),
                    pool,
                    body=lambda self, i, o, c: c.allocate_cuda_stream("the only one"),
                    name=f"first{n}",
                )
            )
            taker = Step(
                app, pool, inputs=("in",), body=take, setup=lambda spec: spec.ambient_stream(), name=f"t{n}"
            )
            app.add_flow(source(app, 1 - n, 10, name=f"source{n}"), taker)

    run(compose, scheduler)
    for n in (0, 1):
        assert [number for device_id, number in seen if device_id == n] == list(range(10))


# -- the current device ------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 5])
def test_a_compute_begins_with_its_device_current_whatever_ran_on_the_thread_before(workers: int) -> None:
    found: dict[int, set[int]] = {0: set(), 1: set()}

    def compose(app: Any) -> None:
        app.scheduler(
            EventBasedScheduler(app, worker_thread_number=workers) if workers else GreedyScheduler(app)
        )

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found[self.device_id].add(current())
            sim.Device(self.ticks % 2).set_current()

        for n in range(4):
            step = Step(app, CountCondition(app, 20), CudaStreamPool(app, n % 2), body=body, name=f"step{n}")
            step.device_id = n % 2
            app.add_operator(step)

    class Chosen(App):
        def compose(self) -> None:
            compose(self)

    Chosen(compose).run()
    assert found == {0: {0}, 1: {1}}


def test_what_is_emitted_on_the_stream_of_another_device_leaves_the_current_one(
    scheduler: MakeScheduler,
) -> None:
    seen: list[int] = []

    def compose(app: Any) -> None:
        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            (theirs,) = op_input.receive_cuda_streams("in")
            op_input.receive_cuda_stream("in")
            op_output.set_cuda_stream(theirs, "out")
            op_output.emit(data, "out")
            assert current() == 1

        middle = Step(
            app, CudaStreamPool(app, 1), inputs=("in",), outputs=("out",), body=pass_on, name="middle"
        )
        app.add_flow(source(app, 0, 20), middle)
        app.add_flow(middle, sink(app, 1, seen))

    run(compose, scheduler)
    assert seen == list(range(20))


@pytest.mark.parametrize("device_id", [0, 1])
def test_the_callers_thread_has_its_device_again_after_the_run(
    scheduler: MakeScheduler, device_id: int
) -> None:
    sim.Device(device_id).set_current()
    run(lambda app: app.add_flow(source(app, 0, 3), sink(app, 1, [])), scheduler)
    assert current() == device_id


def test_the_callers_device_is_not_mistaken_for_that_of_a_worker() -> None:
    sim.Device(1).set_current()

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            sim.Device(0).set_current()
            context.allocate_cuda_stream("s")

        app.add_operator(Step(app, CountCondition(app, 1), body=body, name="step"))

    run(compose, event_based)
    assert current() == 1


def test_making_streams_in_advance_leaves_the_callers_device() -> None:
    sim.Device(0).set_current()
    found: list[int] = []

    class Starting(Step):
        def start(self) -> None:
            super().start()
            found.append(current())

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, 1, reserved_size=2)
        app.add_operator(Starting(app, CountCondition(app, 1), pool, body=lambda *_: None, name="step"))

    run(compose)
    assert found == [0]


def test_the_callers_thread_has_its_device_again_after_a_run_that_failed() -> None:
    sim.Device(0).set_current()

    def compose(app: Any) -> None:
        def fail(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            context.allocate_cuda_stream("s")
            raise ZeroDivisionError

        app.add_operator(Step(app, CudaStreamPool(app, 1), body=fail, name="fail"))

    with pytest.raises(ZeroDivisionError):
        run(compose)
    assert current() == 0


# -- the end -----------------------------------------------------------------------------------------


def test_a_stream_that_fails_does_not_keep_the_others_from_being_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []

    def compose(app: Any) -> None:
        for n in (0, 1):

            def body(self: Any, op_input: Any, op_output: Any, context: Any, n: int = n) -> None:
                stream = context.allocate_cuda_stream("s")
                launch(stream, 10 * MS, lambda: done.append(n))
                if n == 0:
                    app.failing = stream.stream

            app.add_operator(
                Step(app, CountCondition(app, 1), CudaStreamPool(app, n), body=body, name=f"s{n}")
            )

    sync = sim.Stream.sync

    def failing(self: sim.Stream) -> None:
        if self is app.failing:
            raise sim.CUDAError("CUDA_ERROR_LAUNCH_FAILED")
        sync(self)

    monkeypatch.setattr(sim.Stream, "sync", failing)
    app = App(compose)
    with pytest.raises(sim.CUDAError, match="LAUNCH_FAILED"):
        app.run()
    assert 1 in done


def test_slices_of_two_devices(scheduler: MakeScheduler) -> None:
    found: dict[str, tuple[int, int]] = {}

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s")
            found[self.name] = (context.device_from_stream(stream), stream.stream.resources.sm.sm_count)
            assert stream.stream.device.device_id == current()

        for n, counts in enumerate(([16], [40])):
            slices = CudaGreenContextPool(app, n, sms_per_partition=counts, name=f"slices{n}")
            context = CudaGreenContext(app, slices, 0)
            pool = CudaStreamPool(app, n, cuda_green_context=context)
            app.add_operator(Step(app, CountCondition(app, 2), pool, body=body, name=f"step{n}"))

    run(compose, scheduler)
    assert found == {"step0": (0, 16), "step1": (1, 40)}


@pytest.mark.parametrize(
    "make",
    [
        lambda app: CudaStreamPool(app, 2, name="p"),
        lambda app: CudaGreenContextPool(app, 2, num_partitions=2, name="p"),
    ],
)
def test_a_device_that_is_not_there_is_found_when_the_graph_is_composed(make: Any) -> None:
    def compose(app: Any) -> None:
        app.add_operator(Step(app, make(app), body=lambda *_: None, name="step"))

    with pytest.raises(
        ValueError, match=r"operator 'step': 'p' .* device 2, and there are 2, numbered from 0"
    ):
        App(compose).compose_graph()


def test_a_device_is_not_a_negative_number() -> None:
    for make in (lambda: CudaStreamPool(None, -1), lambda: CudaGreenContextPool(None, -1, num_partitions=2)):
        with pytest.raises(ValueError, match="0 or more, not -1"):
            make()


def test_two_threads_run_applications_on_two_devices() -> None:
    found: dict[int, list[int]] = {0: [], 1: []}
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            run(lambda app: app.add_flow(source(app, n, 20), sink(app, n, found[n])))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert found == {0: list(range(20)), 1: list(range(20))}


def test_an_operator_of_the_fragments_default_slices_works_on_their_device() -> None:
    found: list[tuple[int, int]] = []

    def compose(app: Any) -> None:
        app.add_default_green_context_pool(1, [16])

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            found.append((context.device_from_stream(stream), current()))

        app.add_flow(once(app), Step(app, inputs=("in",), body=body, name="step"))

    run(compose)
    assert found == [(1, 1)]
