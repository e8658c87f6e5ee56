"""The life of an allocator's memory: from the first run that uses it to the end of the last."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Application
from headrace.conditions import CountCondition
from headrace.core import Operator
from headrace.gpu import sim
from headrace.resources import BlockMemoryPool, MemoryStorageType, StreamOrderedAllocator, UnboundedAllocator
from headrace.schedulers import GreedyScheduler
from tests.harness import App, Step, run
from tests.resources.pools import Camera, Reader, pool

pytestmark = pytest.mark.usefixtures("machine")


class Uses(Operator):
    """Takes its memory from an allocator that is a parameter."""

    memory: Any

    def setup(self, spec: Any) -> None:
        spec.param("memory", None)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.tensor = self.memory.allocate_tensor(8, "u1")
        self.sizes = self.memory._store(self.memory.default_storage).size


@pytest.mark.parametrize("how", ["resource", "parameter", "condition"])
def test_a_pool_has_its_blocks_from_the_start_of_a_run_to_its_end(how: str, machine: sim.Machine) -> None:
    used: list[int] = []

    def compose(app: Any) -> None:
        app.memory = pool(app, 4)
        parts: list[Any] = [app.memory] if how == "resource" else []
        if how == "condition":
            from headrace.conditions import MemoryAvailableCondition

            parts.append(MemoryAvailableCondition(app, app.memory, min_blocks=1))
        keywords = {"memory": app.memory} if how == "parameter" else {}
        step = Uses(app, CountCondition(app, 1), *parts, name="step", **keywords)
        step.memory = app.memory
        step.start = lambda: used.append(app.memory._store(MemoryStorageType.DEVICE).size)  # type: ignore[method-assign]
        step.stop = lambda: delattr(step, "tensor")  # type: ignore[method-assign]
        app.add_operator(step)

    app = run(compose)
    assert used == [4 * 64]
    assert app.memory._store(MemoryStorageType.DEVICE).size == 0
    assert machine.devices[0].memory.in_use == 0


def test_what_is_held_at_the_end_of_a_run_is_freed_when_it_is_dropped(machine: sim.Machine) -> None:
    def compose(app: Any) -> None:
        app.memory = pool(app, 4)
        app.reader = Reader(app, name="reader")
        app.add_flow(Camera(app, app.memory, 3, name="camera"), app.reader)
        app.reader.keeps = 2
        app.reader.stop = lambda: None

    app = run(compose)
    assert machine.devices[0].memory.in_use == 2 * 64
    app.reader.kept.clear()
    assert machine.devices[0].memory.in_use == 0


def test_an_allocator_serves_one_run_after_the_other() -> None:
    memory = pool(None, 2)

    def compose(app: Any) -> None:
        app.reader = Reader(app, name="reader")
        app.add_flow(Camera(app, memory, 10, name="camera"), app.reader)

    for _ in range(3):
        assert run(compose).reader.seen == list(range(10))
        assert memory._store(MemoryStorageType.DEVICE).size == 0


def test_two_runs_share_a_pool_and_the_last_frees_it() -> None:
    memory = pool(None, 2)
    inner: list[Any] = []

    def compose_inner(app: Any) -> None:
        app.reader = Reader(app, name="reader")
        app.add_flow(Camera(app, memory, 10, name="camera"), app.reader)

    def compose(app: Any) -> None:
        def other() -> None:
            tensor = memory.allocate_tensor(8, "u1")
            inner.append(run(compose_inner).reader.seen)
            inner.append(memory._store(MemoryStorageType.DEVICE).size)
            del tensor

        outer = Step(app, CountCondition(app, 1), memory, name="outer")
        outer.start = other  # the run has begun, and has its memory
        app.add_operator(outer)

    run(compose)
    assert inner == [list(range(10)), 2 * 64]
    assert memory._store(MemoryStorageType.DEVICE).size == 0


def test_a_run_that_fails_returns_everything() -> None:
    def compose(app: Any) -> None:
        app.memory = pool(app, 2)

        def fail(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            raise RuntimeError("on purpose")

        app.add_flow(
            Camera(app, app.memory, 10, name="camera"), Step(app, inputs=["in"], body=fail, name="fails")
        )

    app = App(compose)
    with pytest.raises(RuntimeError, match="on purpose") as caught:
        app.run()
    caught.value.__traceback__ = None
    del caught
    import gc

    gc.collect()
    assert app.memory.free_blocks == 2
    assert app.memory._store(MemoryStorageType.DEVICE).size == 0


def test_resources_are_made_from_a_file(tmp_path: Any) -> None:
    class FromFile(Application):
        def compose(self) -> None:
            self.scheduler(GreedyScheduler(self))
            self.memory = BlockMemoryPool(self, self.from_config("blocks"), name="blocks")
            self.ordered = StreamOrderedAllocator(self, **self.kwargs("ordered"))
            self.any = UnboundedAllocator(self, name="any")
            step = Uses(
                self, CountCondition(self, 1), self.ordered, self.any, name="step", memory=self.memory
            )
            self.add_operator(step)

    file = tmp_path / "app.yaml"
    file.write_text(
        "blocks: {storage_type: 1, block_size: 4KB, num_blocks: 3}\n"
        "ordered: {device_memory_initial_size: 1MB, device_memory_max_size: 1.5 GB}\n"
    )
    app = FromFile([])
    app.config(str(file))
    app.run()
    assert (app.memory.storage_type, app.memory.block_size) == (MemoryStorageType.DEVICE, 4096)
    assert app.ordered.device_memory_max_size == 3 << 29
