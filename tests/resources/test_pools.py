"""Stream pools and slices of the device, as resources of a pipeline."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import CountCondition, gpu
from penstock.core.errors import GraphError
from penstock.gpu import sim
from penstock.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from penstock.schedulers import EventBasedScheduler
from tests.harness import MS, App, Consumer, MakeScheduler, Producer, Step, greedy, launch, run

pytestmark = pytest.mark.usefixtures("machine")


def sms_of(*args: Any, prepare: Any = None, scheduler: MakeScheduler = greedy, **kwargs: Any) -> int:
    """Run one operator with these arguments and give the SMs that its stream may use."""
    found: list[int] = []

    def compose(app: Any) -> None:
        if prepare is not None:
            prepare(app)

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.allocate_cuda_stream("s").stream.resources.sm.sm_count)

        step = Step(
            app, CountCondition(app, 2), body=body, name="step", **{k: v(app) for k, v in kwargs.items()}
        )
        for make in args:
            step.add_arg(make(app))
        app.add_operator(step)

    run(compose, scheduler)
    assert found[0] == found[1]
    return found[0]


def green_pool(app: Any, **kwargs: Any) -> CudaGreenContextPool:
    kwargs.setdefault("sms_per_partition", [16, 40])
    return CudaGreenContextPool(app, 0, **kwargs)


def test_an_operator_without_a_pool_may_use_every_sm(scheduler: MakeScheduler) -> None:
    assert sms_of(scheduler=scheduler) == 132


@pytest.mark.parametrize(("index", "sms"), [(0, 16), (1, 40), (2, 76), (-1, 76)])
def test_a_green_context_is_a_slice_of_the_device(scheduler: MakeScheduler, index: int, sms: int) -> None:
    def pool(app: Any) -> CudaStreamPool:
        context = CudaGreenContext(app, cuda_green_context_pool=green_pool(app), index=index)
        return CudaStreamPool(app, 0, 0, 0, 1, 5, context, name="pool")

    assert sms_of(pool, scheduler=scheduler) == sms


def test_a_pool_of_slices_given_to_an_operator_means_its_default_one() -> None:
    assert sms_of(green_pool) == 76
    assert sms_of(lambda app: green_pool(app, default_context_index=1)) == 40
    assert sms_of(lambda app: CudaGreenContext(app, green_pool(app), 0)) == 16


def test_a_pool_can_be_given_by_the_parameter_of_that_name() -> None:
    def declare(spec: Any) -> None:
        spec.param("cuda_stream_pool", None)

    found: list[int] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.allocate_cuda_stream("s").stream.resources.sm.sm_count)

        pool = CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, green_pool(app), 0))
        app.add_operator(
            Step(app, CountCondition(app, 1), body=body, setup=declare, name="step", cuda_stream_pool=pool)
        )

    run(compose)
    assert found == [16]


def test_the_fragments_default_slices_are_for_operators_that_were_given_none() -> None:
    def prepare(app: Any) -> None:
        assert app.get_default_green_context_pool() is None
        pool = app.add_default_green_context_pool(0, [8, 24])
        assert app.get_default_green_context_pool() is pool

    assert sms_of(prepare=prepare) == 100
    assert sms_of(lambda app: CudaStreamPool(app), prepare=prepare) == 132


def test_equal_shares() -> None:
    pool = CudaGreenContextPool(None, num_partitions=3)
    assert pool.sm_counts == [40, 40, 40, 12]
    assert CudaGreenContext(None, pool, 1).sm_count == 40
    assert CudaGreenContext(None, pool).sm_count == 12


def test_the_real_counts_can_be_asked_for() -> None:
    assert CudaGreenContextPool(None, sms_per_partition=[30]).sm_counts == [32, 100]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs num_partitions or sms_per_partition"),
        ({"num_partitions": 3, "sms_per_partition": [8, 8]}, r"num_partitions=3, but .* has 2: \[8, 8\]"),
        ({"sms_per_partition": [1]}, "less than min_sm_size=2"),
        ({"num_partitions": -1}, "needs num_partitions or sms_per_partition"),
        ({"num_partitions": 2, "flags": 1}, "flags must be 0"),
    ],
)
def test_slices_that_make_no_sense_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CudaGreenContextPool(None, **arguments)


def composed(*args: Any, **kwargs: Any) -> App:
    """Compose, without running it, an application whose operator 'step' was given these."""

    def compose(app: Any) -> None:
        step = Step(app, CountCondition(app, 1), body=lambda *_: None, name="step", **kwargs)
        for make in args:
            step.add_arg(make(app))
        app.add_operator(step)

    app = App(compose)
    app.compose_graph()
    return app


IMPOSSIBLE: list[tuple[Any, str]] = [
    (
        lambda app: CudaGreenContext(app, green_pool(app, name="p"), 5),
        r"operator 'step': 'p' has 3 partitions of \[16, 40, 76\] SMs, so no index 5; 0 to 2",
    ),
    (
        lambda app: CudaStreamPool(
            app, cuda_green_context=CudaGreenContext(app, green_pool(app, name="p"), -4)
        ),
        r"operator 'step': 'p' has 3 partitions .* no index -4; 0 to 2",
    ),
    (
        lambda app: green_pool(app, name="p", sms_per_partition=[100, 100]),
        r"operator 'step': 'p': 100 \+ 100 = 200 SMs asked for, but .* has 132.* 28 SMs are left",
    ),
    (
        lambda app: CudaGreenContextPool(app, num_partitions=17, name="p"),
        r"operator 'step': 'p': 17 equal partitions of 132 SMs .* at most 16 are possible",
    ),
    (
        lambda app: CudaGreenContextPool(app, num_partitions=9, min_sm_size=20, name="p"),
        r"operator 'step': 'p': 9 equal partitions of 132 SMs .* fewer than 20 .* at most 5 are possible",
    ),
    (
        lambda app: CudaGreenContext(app, green_pool(app, name="p", sms_per_partition=NAMED), "radar"),
        "operator 'step': 'p' has no partition 'radar'; it has 'control', 'vision', 'leftover'",
    ),
    (
        lambda app: green_pool(app, name="p", default_context_index=3),
        "operator 'step': 'p' has 3 partitions .* no index 3",
    ),
    (
        lambda app: CudaGreenContext(app, green_pool(app, name="p", default_context_index="radar"), 0),
        "operator 'step': 'p' has no partition 'radar'; it has '0', '1', 'leftover'",
    ),
    (lambda app: green_pool(app, name="p", sms_per_partition=[16, -8]), "'p': partition '1' asks for -8 SMs"),
]
NAMED = {"control": 16, "vision": 40}


@pytest.mark.parametrize(("make", "text"), IMPOSSIBLE)
def test_impossible_slices_are_found_when_the_graph_is_composed(
    make: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("composing makes nothing on a device")

    for call in ("create_context", "create_stream", "set_current"):
        monkeypatch.setattr(sim.Device, call, refuse)
    with pytest.raises(gpu.PartitionError, match=text):
        composed(make)


def test_impossible_slices_of_the_fragment_are_found_too() -> None:
    def compose(app: Any) -> None:
        app.add_default_green_context_pool(0, [100, 100])
        app.add_operator(Step(app, body=lambda *_: None, name="step"))

    with pytest.raises(gpu.PartitionError, match="operator 'step': 'default_green_context_pool': 100 .* 132"):
        App(compose).compose_graph()


def test_impossible_slices_of_a_pool_given_by_parameter_are_found_too() -> None:
    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, green_pool(app, name="p"), 5))
        app.add_operator(
            Step(
                app,
                body=lambda *_: None,
                setup=lambda spec: spec.param("cuda_stream_pool", None),
                name="step",
                cuda_stream_pool=pool,
            )
        )

    with pytest.raises(gpu.PartitionError, match="operator 'step': 'p' has 3 partitions"):
        App(compose).compose_graph()


def test_slices_that_are_possible_are_composed_without_making_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for call in ("create_context", "create_stream", "set_current"):
        monkeypatch.setattr(sim.Device, call, lambda *_: pytest.fail("composing makes nothing on a device"))
    composed(lambda app: CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, green_pool(app), 2)))


def test_where_there_is_no_device_none_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "backend", lambda: "none")
    monkeypatch.setattr(gpu, "Device", lambda *_: pytest.fail("there is no device"))
    for index in (0, 1, 2, -1, -3):
        composed(lambda app, index=index: CudaGreenContext(app, green_pool(app), index))
    composed(lambda app: CudaGreenContextPool(app, num_partitions=500))
    composed(lambda app: CudaStreamPool(app, 7))
    # What is wrong on every device is known still.
    with pytest.raises(
        gpu.PartitionError, match="'step': 'p' has at most 3 partitions, so no index 3; 0 to 2"
    ):
        composed(lambda app: CudaGreenContext(app, green_pool(app, name="p"), 3))
    with pytest.raises(
        gpu.PartitionError, match="no partition 'radar'; it has 'control', 'vision', 'leftover'"
    ):
        composed(lambda app: CudaGreenContext(app, green_pool(app, sms_per_partition=NAMED), "radar"))


def test_a_green_context_needs_a_pool() -> None:
    with pytest.raises(TypeError, match="cuda_green_context_pool="):
        CudaGreenContext(None)


# -- by name -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "sms"), [("control", 16), ("vision", 40), ("leftover", 76)])
def test_a_slice_is_chosen_by_name(scheduler: MakeScheduler, name: str, sms: int) -> None:
    def context(app: Any) -> CudaGreenContext:
        return CudaGreenContext(app, green_pool(app, sms_per_partition=NAMED), name)

    assert sms_of(context, scheduler=scheduler) == sms
    assert sms_of(lambda app: CudaStreamPool(app, cuda_green_context=context(app))) == sms
    assert context(None).sm_count == sms


def test_slices_without_names_are_called_by_their_positions() -> None:
    pool = green_pool(None)
    assert pool.names == ["0", "1"]
    assert [CudaGreenContext(None, pool, name).sm_count for name in ("0", "1", "leftover")] == [16, 40, 76]
    assert CudaGreenContextPool(None, num_partitions=3).names == ["0", "1", "2"]


def test_the_default_slice_may_be_chosen_by_name() -> None:
    assert sms_of(lambda app: green_pool(app, sms_per_partition=NAMED, default_context_index="vision")) == 40
    assert sms_of(lambda app: green_pool(app, sms_per_partition=NAMED)) == 76

    def prepare(app: Any) -> None:
        app.add_default_green_context_pool(0, NAMED, "control")

    assert sms_of(prepare=prepare) == 16


def test_named_slices_are_still_in_order() -> None:
    pool = green_pool(None, sms_per_partition=NAMED, num_partitions=2)
    assert pool.names == ["control", "vision"]
    assert pool.sms_per_partition == [16, 40]
    assert pool.sm_counts == [16, 40, 76]
    assert CudaGreenContext(None, pool, 1).sm_count == 40


def test_slices_can_be_described_in_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(
        """
slices:
  sms_per_partition: {control: 16, vision: 40}
  default_context_index: vision
step:
  index: control
"""
    )

    def made(app: Any) -> tuple[int, int]:
        app.config(tmp_path / "app.yaml")
        pool = CudaGreenContextPool(app, **app.kwargs("slices"))
        return CudaGreenContext(app, pool, **app.kwargs("step")).sm_count, CudaGreenContext(
            app, pool
        ).sm_count

    assert made(App(lambda app: None)) == (16, 40)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"leftover": 8}, gpu.PartitionError, "'p': a partition cannot be called 'leftover'"),
        ({"": 8}, gpu.PartitionError, "'p': a partition cannot be called ''"),
        ({3: 8}, gpu.PartitionError, "'p': a partition cannot be called 3"),
        ({"control": 1}, gpu.PartitionError, "'p': partition 'control' asks for 1 SMs, .* min_sm_size=2"),
        ({"control": 8.0}, TypeError, "'p': partition 'control': an SM count is an int, got 8.0"),
        (["8"], TypeError, "'p': partition '0': an SM count is an int, got '8'"),
        ([True], TypeError, "'p': partition '0': an SM count is an int, got True"),
        ("88", TypeError, "'p': sms_per_partition is a sequence of SM counts or a mapping of names to them"),
    ],
)
def test_names_and_counts_that_make_no_sense_are_refused(arguments: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        CudaGreenContextPool(None, sms_per_partition=arguments, name="p")


def test_a_slice_is_chosen_by_position_or_name_and_by_nothing_else() -> None:
    for index in (1.5, True):
        with pytest.raises(TypeError, match="'p': a partition is chosen by position or by name, not by"):
            _ = CudaGreenContext(None, green_pool(None, name="p"), index).sm_count  # type: ignore[arg-type]


# -- one source for an operator, one division of a device --------------------------------------------


@pytest.mark.parametrize(
    ("makes", "first", "second"),
    [
        ((CudaStreamPool, CudaStreamPool), "CudaStreamPool 'a'", "CudaStreamPool 'b'"),
        (
            (CudaStreamPool, lambda app, name: CudaGreenContext(app, green_pool(app), 0, name=name)),
            "CudaStreamPool 'a'",
            "CudaGreenContext 'b'",
        ),
        (
            (lambda app, name: CudaGreenContext(app, green_pool(app), 0, name=name), CudaStreamPool),
            "CudaGreenContext 'a'",
            "CudaStreamPool 'b'",
        ),
        ((CudaStreamPool, green_pool), "CudaStreamPool 'a'", "CudaGreenContextPool 'b'"),
    ],
)
def test_an_operator_that_was_given_two_sources_of_streams_is_refused(
    makes: Any, first: str, second: str
) -> None:
    given = [
        lambda app, make=make, name=name: make(app, name=name) for make, name in zip(makes, "ab", strict=True)
    ]
    with pytest.raises(
        GraphError, match=rf"operator 'step' .* was given two: {first} and {second}; give it one"
    ):
        composed(*given)


def test_two_slices_of_one_pool_are_two_sources_too() -> None:
    def compose(app: Any) -> None:
        pool = green_pool(app)
        contexts = [CudaGreenContext(app, pool, n, name=f"c{n}") for n in (0, 1)]
        app.add_operator(Step(app, *contexts, body=lambda *_: None, name="step"))

    with pytest.raises(GraphError, match="given two: CudaGreenContext 'c0' and CudaGreenContext 'c1'"):
        App(compose).compose_graph()


def test_a_pool_given_by_parameter_counts_as_well() -> None:
    def compose(app: Any) -> None:
        pools = [CudaStreamPool(app, name=name) for name in "ab"]
        app.add_operator(
            Step(
                app,
                pools[0],
                body=lambda *_: None,
                setup=lambda spec: spec.param("cuda_stream_pool", None),
                name="step",
                cuda_stream_pool=pools[1],
            )
        )

    with pytest.raises(GraphError, match="given two: CudaStreamPool 'a' and CudaStreamPool 'b'"):
        App(compose).compose_graph()


@pytest.mark.parametrize("given", [(0, 1), (1, 0), (0, 1, 2), (2, 1, 0), (2, 1), (1, 2), (2, 0)])
def test_a_stream_pool_may_come_with_the_slice_it_stands_on(given: tuple[int, ...]) -> None:
    found: list[int] = []

    def compose(app: Any) -> None:
        slices = green_pool(app)
        context = CudaGreenContext(app, slices, 0)
        parts = (CudaStreamPool(app, cuda_green_context=context), context, slices)

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.allocate_cuda_stream("s").stream.resources.sm.sm_count)

        step = Step(app, CountCondition(app, 1), *(parts[n] for n in given), body=body, name="step")
        app.add_operator(step)

    run(compose)
    assert found == [16]


@pytest.mark.parametrize(
    ("first", "second", "right"),
    [
        ({"sms_per_partition": [16]}, {"sms_per_partition": [40, 8]}, r"sms_per_partition=\[16, 40, 8\]"),
        (
            {"sms_per_partition": {"a": 16}},
            {"sms_per_partition": {"b": 40}},
            r"sms_per_partition=\{'a': 16, 'b': 40\}",
        ),
        ({"sms_per_partition": {"a": 16}}, {"sms_per_partition": {"a": 40}}, r"sms_per_partition=\[16, 40\]"),
        ({"sms_per_partition": {"a": 16}}, {"sms_per_partition": [40]}, r"sms_per_partition=\[16, 40\]"),
        ({"num_partitions": 2}, {"sms_per_partition": [40]}, "num_partitions=3"),
    ],
)
def test_two_pools_that_divide_one_device_are_refused(first: Any, second: Any, right: str) -> None:
    def compose(app: Any) -> None:
        for n, arguments in enumerate((first, second)):
            slices = CudaGreenContextPool(app, **arguments, name=f"slices{n}")
            given = CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, slices, 0))
            app.add_operator(Step(app, given, body=lambda *_: None, name=f"step{n}"))

    with pytest.raises(
        GraphError,
        match=rf"'slices0' \(operator 'step0'\) and .*'slices1' \(operator 'step1'\) both divide device 0.*{right}",
    ):
        App(compose).compose_graph()


def test_the_fragments_slices_and_those_of_an_operator_are_two_pools() -> None:
    def compose(app: Any, is_default_used: bool) -> None:
        app.add_default_green_context_pool(0, [8])
        if is_default_used:
            app.add_operator(Step(app, CountCondition(app, 1), body=lambda *_: None, name="plain"))
        app.add_operator(
            Step(app, CountCondition(app, 1), green_pool(app, name="p"), body=lambda *_: None, name="step")
        )

    with pytest.raises(GraphError, match=r"'default_green_context_pool' \(operator 'plain'\) and .* 'p'"):
        App(lambda app: compose(app, is_default_used=True)).compose_graph()
    App(lambda app: compose(app, is_default_used=False)).run()


# -- pools that several runs share -------------------------------------------------------------------


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


def test_a_device_is_divided_once_whoever_asks_first(divided: list[gpu.Partitions]) -> None:
    def compose(app: Any) -> None:
        app.scheduler(EventBasedScheduler(app, worker_thread_number=5))
        slices = green_pool(app)
        for n in range(5):
            context = CudaGreenContext(app, slices, n % 3, name=f"context{n}")
            app.add_operator(
                Step(
                    app,
                    CountCondition(app, 5),
                    context,
                    body=lambda self, i, o, c: c.allocate_cuda_stream("s"),
                    name=f"step{n}",
                )
            )

    class Chosen(App):
        def compose(self) -> None:
            compose(self)

    for times in range(1, 6):
        Chosen(compose).run()
        assert len(divided) == times
        assert len(divided[-1]) == 0  # closed


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


def test_a_pool_that_is_shared_gives_each_run_streams_of_its_own() -> None:
    pool = CudaStreamPool(None, reserved_size=0, max_size=1)
    found: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.allocate_cuda_stream("s"))

        app.add_operator(Step(app, CountCondition(app, 1), pool, body=body, name="step"))

    sharing(pool, 1, stop=App(compose).run).run()
    assert found == [None]
    App(compose).run()
    assert found[1] is not None


def test_runs_that_start_and_end_at_any_time_share_a_pool() -> None:
    slices = green_pool(None)
    pool = CudaStreamPool(None, cuda_green_context=CudaGreenContext(None, slices, 0))
    failures: list[BaseException] = []

    def work(given: Any) -> None:
        try:
            for _ in range(15):
                app = sharing(given, 2)
                app.run()
                assert app.done == 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(given,)) for given in (pool, pool, slices, slices)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with pytest.raises(RuntimeError, match="while a run uses it, and none does now"):
        slices.partition(0)


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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"stream_flags": 4}, "stream_flags must be 0 or 1"),
        ({"max_size": -1}, "must not be negative"),
        ({"stream_priority": 1}, "stream_priority is 0, or less to go first, not 1"),
        ({"reserved_size": 3, "max_size": 2}, "reserved_size=3 is more than max_size=2"),
        (
            {"dev_id": 1, "cuda_green_context": CudaGreenContextPool(None, num_partitions=2)},
            "device 1.*device 0",
        ),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CudaStreamPool(None, **arguments)


def test_flags_and_priority_are_the_streams() -> None:
    found: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s").stream
            found.append((stream.is_nonblocking, stream.priority))

        for n, pool in enumerate((CudaStreamPool(app), CudaStreamPool(app, 0, 1, -3))):
            app.add_operator(Step(app, CountCondition(app, 1), pool, body=body, name=f"step{n}"))

    run(compose)
    assert found == [(False, 0), (True, -3)]


def test_streams_are_made_as_they_are_needed_and_destroyed_at_the_end(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    original = sim.Device.create_stream

    def create(self: Any, obj: Any = None, options: Any = None) -> Any:
        made.append(original(self, obj, options))
        return made[-1]

    monkeypatch.setattr(sim.Device, "create_stream", create)
    counts: list[int] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            counts.append(len(made))
            for name in "abcde"[: self.ticks]:
                context.allocate_cuda_stream(name)

        pool = CudaStreamPool(app, reserved_size=2, max_size=4)
        app.add_operator(Step(app, CountCondition(app, 6), pool, body=body, name="step"))

    run(compose)
    assert counts == [2, 2, 2, 3, 4, 4]
    assert all(stream.is_closed for stream in made)


def test_the_streams_of_operators_without_a_pool_are_destroyed_too() -> None:
    handles: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            handles.append(context.allocate_cuda_stream("s"))

        app.add_operator(Step(app, CountCondition(app, 1), body=body, name="step"))

    run(compose)
    assert handles[0].stream.is_closed


def test_one_pool_serves_several_operators() -> None:
    streams: dict[str, set[int]] = {}

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            streams.setdefault(self.name, set()).add(int(context.allocate_cuda_stream("s")))

        pool = CudaStreamPool(app, max_size=3)
        for n in range(3):
            app.add_operator(Step(app, CountCondition(app, 3), pool, body=body, name=f"step{n}"))

    run(compose)
    assert [len(found) for found in streams.values()] == [1, 1, 1]
    assert len(set.union(*streams.values())) == 3


def test_partitions_are_closed_after_their_streams_and_can_be_made_again(scheduler: MakeScheduler) -> None:
    def compose(app: Any) -> None:
        slices = green_pool(app)
        pools = [CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, slices, n)) for n in (0, 1)]
        app.consumer = Consumer(app, pools[1], name="consumer")
        app.add_flow(Producer(app, CountCondition(app, 10), pools[0], name="producer"), app.consumer)

    for _ in range(2):
        assert run(compose, scheduler).consumer.seen == list(range(10))


def test_two_branches_on_their_own_slices_overlap(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    def total(sliced: bool) -> float:
        start = machine.now

        def compose(app: Any) -> None:
            slices = green_pool(app, sms_per_partition=[16])
            for n in (0, 1):
                pool = (
                    CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, slices, n))
                    if sliced
                    else None
                )

                def body(self: Any, op_input: Any, op_output: Any, context: Any, n: int = n) -> None:
                    # More blocks than fit on the whole device, so that two of them cannot share it.
                    blocks = (16, 116)[n] * 8 if sliced else 132 * 8
                    launch(context.allocate_cuda_stream("s"), MS, lambda: None, grid=blocks)

                branch = Step(
                    app, CountCondition(app, 10), *([pool] if pool else []), body=body, name=f"branch{n}"
                )
                app.add_operator(branch)

        run(compose, scheduler)
        return machine.now - start

    assert total(sliced=True) < 1.1 * 10 * MS
    assert total(sliced=False) > 1.9 * 10 * MS
