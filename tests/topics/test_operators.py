"""Programs that export and import topics."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from headrace import Application, aligned, op
from headrace.application import Fragment
from headrace.core import EndedBy, IOSpec, SchedulingStatusType
from headrace.core.control import TimeBase
from headrace.core.errors import GraphError, PortError, TopicError
from headrace.operators import FeedOp
from headrace.resources import ManualClock, RealtimeClock
from headrace.topics import Publication, Subscription
from tests.harness import PATIENCE, App, MakeScheduler, Step, run, sink, source, through, wait_until
from tests.topics.ends import FAULT, POP, await_subscribers, published, reading


class Sender(App):
    """A program that publishes what a test puts into its feed."""

    def __init__(self, scheduler: MakeScheduler, **options: Any) -> None:
        def compose(app: Any) -> None:
            app.export_topic("a", FeedOp(app, name="feed"), "out", **options)

        super().__init__(compose, scheduler, clock=RealtimeClock())

    @property
    def publication(self) -> Publication:
        self.wait_until_started(PATIENCE)
        found = self.topics()["export a"]
        assert isinstance(found, Publication)
        return found


def receive(scheduler: MakeScheduler, taken: list[Any], **options: Any) -> tuple[App, Future[Any]]:
    """Run a program that receives a topic."""
    app = App(lambda app: app.import_topic("a", sink(app, taken), "in", **options), scheduler, clock=None)
    return app, app.run_async()


@pytest.mark.parametrize("exports_first", [True, False])
def test_a_program_that_waits_for_the_end_of_its_own_topic_is_refused(exports_first: bool) -> None:
    def compose(app: Any) -> None:
        declare = [
            lambda: app.export_topic("a", source(app, [1]), "out"),
            lambda: app.import_topic("a", sink(app, []), "in", ends_with_topic=True),
        ]
        for each in declare if exports_first else reversed(declare):
            each()

    with pytest.raises(TopicError, match=r"import_topic\('a', ends_with_topic=True\) .* would never end"):
        App(compose).compose_graph()


@pytest.mark.parametrize("exports_first", [True, False])
def test_fragments_that_wait_for_the_end_of_each_others_topics_are_refused(exports_first: bool) -> None:
    class Exports(Fragment):
        def compose(self) -> None:
            self.export_topic("a", source(self, [1]), "out")

    class Imports(Fragment):
        def compose(self) -> None:
            self.import_topic("a", sink(self, []), "in", ends_with_topic=True)

    class Both(Application):
        def compose(self) -> None:
            parts = [Exports(self, "one"), Imports(self, "two")]
            for part in parts if exports_first else reversed(parts):
                self.add_fragment(part)

    with pytest.raises(TopicError, match="'two' imports it, and 'one' exports it.* would never end"):
        Both().compose_graph()


def test_a_program_receives_what_another_publishes(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    sender = Sender(scheduler, policy=FAULT)
    receiver, ended = receive(scheduler, taken, policy=FAULT, ends_with_topic=True)
    with sender.running():
        await_subscribers(sender.publication)
        for value in range(20):
            sender.feed("feed").put(value)
    assert ended.result(PATIENCE).ended_by is EndedBy.FINISHED
    assert taken == list(range(20))
    subscription = receiver.topics()["import a"]
    assert isinstance(subscription, Subscription)
    assert (subscription.received, subscription.missed) == (20, 0)
    publication = sender.publication
    assert (publication.published, publication.sent, publication.lost) == (20, 20, 0)


def test_metadata_and_timestamps_arrive_as_over_a_flow(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []

    def look(op: Any, op_input: Any, op_output: Any) -> None:
        data = op_input.receive("in")
        seen.append((np.asarray(data).tolist(), op_input.get_acquisition_timestamp("in"), dict(op.metadata)))

    receiver = App(
        lambda app: app.import_topic("a", Step(app, inputs=["in"], body=look, name="look"), count=1),
        scheduler,
        clock=RealtimeClock(),
    )
    ended = receiver.run_async()
    sender = Sender(scheduler)
    with sender.running():
        await_subscribers(sender.publication)
        sender.feed("feed").put(np.arange(3), metadata={"camera": "left"}, acq_timestamp=42)
        assert ended.result(PATIENCE).ended_by is EndedBy.FINISHED
    assert seen == [([0, 1, 2], 42 + _between(sender, receiver), {"camera": "left"})]


def test_a_publisher_does_not_wait_for_a_subscriber_that_takes_nothing(scheduler: MakeScheduler) -> None:
    sender = Sender(scheduler)
    with reading(policy=FAULT) as stuck:
        with sender.running():
            publication = sender.publication
            await_subscribers(publication)
            for value in range(50):
                sender.feed("feed").put(value)
            wait_until(lambda: publication.published == 50, "all were published")
            # At its end, the run would wait for the last message, as long as the subscriber is alive.
            sender.stop_execution()
        assert (publication.sent, publication.lost) == (1, 49)
        assert stuck.subscription.take() is not None


def test_a_run_ends_when_its_last_message_is_on_its_way(scheduler: MakeScheduler) -> None:
    sender = Sender(scheduler, policy=FAULT)
    with reading(policy=FAULT) as reader:
        ended = sender.run_async()
        await_subscribers(sender.publication)
        with sender.feed("feed") as feed:
            for value in range(3):
                feed.put(value)
        assert reader.values(3) == [0, 1, 2]
        assert ended.result(PATIENCE).ended_by is EndedBy.FINISHED
        assert (sender.publication.sent, sender.publication.lost) == (3, 0)


def test_a_run_does_not_end_before_its_last_message_is_on_its_way(scheduler: MakeScheduler) -> None:
    sender = Sender(scheduler)
    with reading(policy=FAULT) as reader:
        ended = sender.run_async()
        publication = sender.publication
        await_subscribers(publication)
        with sender.feed("feed") as feed:
            feed.put(0)
            wait_until(lambda: publication.sent == 1, "the first was sent")
            feed.put(1)  # for which there is no room until the first is taken
        node = sender.graph.find("feed")._headrace.node
        assert node is not None
        wait_until(lambda: node.status() is SchedulingStatusType.NEVER, "the feed has ended")
        assert reader.values(2) == [0, 1]
        assert ended.result(PATIENCE).ended_by is EndedBy.FINISHED
        assert (publication.sent, publication.lost) == (2, 0)


def test_an_import_ends_after_its_count(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    with published(policy=FAULT) as publication:
        _, ended = receive(scheduler, taken, policy=FAULT, count=2)
        await_subscribers(publication)
        for value in range(3):
            wait_until(lambda: publication.has_room, "room")
            publication.publish(value)
        assert ended.result(PATIENCE).ended_by is EndedBy.FINISHED
        assert taken == [0, 1]


def test_an_import_that_has_ended_leaves_the_topic_although_its_program_goes_on(
    scheduler: MakeScheduler,
) -> None:
    """Its program may be the one that publishes, and would wait for itself."""
    taken: list[int] = []

    def compose(app: Any) -> None:
        app.import_topic("a", sink(app, taken), "in", policy=FAULT, count=1)
        app.add_flow(FeedOp(app, name="feed"), sink(app, [], name="goes on"))

    with published(policy=FAULT) as publication:
        app = App(compose, scheduler, clock=None)
        with app.running():
            await_subscribers(publication)
            publication.publish(0)
            await_subscribers(publication, 0)
            assert publication.has_room
    assert taken == [0]


def test_a_slow_operator_gets_the_newest_message() -> None:
    with published() as publication:
        taken: list[int] = []

        def slow(op: Any, op_input: Any, op_output: Any) -> None:
            taken.append(op_input.receive("in"))
            if len(taken) == 1:
                for value in range(1, 6):
                    publication.publish(value)
                wait_until(lambda: publication.sent + publication.lost == 6, "all are on their way")
                inbox = app.topics()["import a"]._inbox
                wait_until(lambda: [message.number for _, message in inbox.copy()] == [6], "the last is here")

        app = App(
            lambda app: app.import_topic("a", Step(app, inputs=["in"], body=slow, name="slow"), count=2),
            clock=None,
        )
        ended = app.run_async()
        await_subscribers(publication)
        publication.publish(0)
        ended.result(PATIENCE)
        assert taken == [0, 5]
        assert app.topics()["import a"].missed == 4


class Edge(Fragment):
    def compose(self) -> None:
        detector = through(self, name="detector", change=lambda value: value * 10)
        self.add_flow(source(self, [1, 2, 3], name="camera"), detector)


class Screen(Fragment):
    def __init__(self, application: Any, name: str, taken: list[int]) -> None:
        self.taken = taken
        super().__init__(application, name)

    def compose(self) -> None:
        self.add_operator(sink(self, self.taken, name="viewer"))


def test_fragments_export_and_import_topics() -> None:
    taken: list[int] = []

    class Plant(Application):
        def compose(self) -> None:
            self.export_topic("plant/boxes", Edge(self, "edge"), "detector.out", policy=FAULT)
            self.import_topic(
                "plant/boxes", Screen(self, "screen", taken), "viewer.in", policy=FAULT, last=True, count=1
            )

    app = Plant()
    app.run()
    assert taken[0] in (10, 20, 30)
    assert list(app.topics()) == ["edge.export plant/boxes", "screen.import plant/boxes"]


def test_a_fragment_without_such_an_operator_is_an_error() -> None:
    class Plant(Application):
        def compose(self) -> None:
            self.export_topic("plant/boxes", Edge(self, "edge"), "detektor.out")

    with pytest.raises(
        GraphError, match=r"export_topic\('plant/boxes'\): fragment 'edge' has no operator 'detektor'"
    ):
        Plant().run()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": 0}, "size must be a number of messages of 1 or more, not 0"),
        ({"policy": IOSpec.QueuePolicy.LATEST}, "policy must be POP .* not <QueuePolicy.LATEST"),
        ({"policy": "POP"}, "policy must be POP .* not 'POP'"),
    ],
)
def test_the_queue_of_a_topic_is_checked(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(TopicError, match=rf"export_topic\('a'\): {expected}"):
        run(lambda app: app.export_topic("a", source(app, [1]), **options))
    with pytest.raises(TopicError, match=rf"import_topic\('a'\): {expected}"):
        run(lambda app: app.import_topic("a", sink(app, []), **options))


def test_a_topic_is_exported_once_in_a_program() -> None:
    def compose(app: Any) -> None:
        one = source(app, [1])
        app.export_topic("a", one)
        app.export_topic("a", one)

    with pytest.raises(TopicError, match="exports this topic already, by 'export a'"):
        run(compose)


def test_a_port_that_is_not_there_is_an_error() -> None:
    with pytest.raises((GraphError, PortError), match="has no"):
        run(lambda app: app.export_topic("a", source(app, [1]), "nothing"))


def test_an_input_keeps_the_policy_that_it_declares() -> None:
    @op
    def keep(value: int) -> None:
        pass

    def compose(app: Any) -> None:
        declared = Step(app, inputs=[("in", {"policy": IOSpec.QueuePolicy.REJECT})], name="declared")
        app.import_topic("a", (declared, keep(app)))

    app = App(compose)
    app.compose_graph()
    policies = [flow.policy for flow in app.graph.flows]
    assert policies == [None, POP]


@pytest.mark.parametrize("policy", [POP, FAULT])
def test_an_operator_may_emit_as_many_messages_at_once_as_the_queue_holds(
    scheduler: MakeScheduler, policy: IOSpec.QueuePolicy
) -> None:
    def burst(op: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        for value in range(3):
            op.metadata.clear()
            op.metadata.set("value", value)
            op_output.emit(value, "out", acq_timestamp=100 + value)

    taken: list[Any] = []

    def look(op: Any, op_input: Any, op_output: Any) -> None:
        value = op_input.receive("in")
        taken.append((value, op_input.get_acquisition_timestamp("in"), dict(op.metadata)))

    def compose(app: Any) -> None:
        each = Step(app, inputs=["in"], outputs=["out"], body=burst, name="burst")
        app.add_flow(FeedOp(app, name="feed"), each)
        app.export_topic("a", each, policy=policy, size=6)

    receiver = App(
        lambda app: app.import_topic(
            "a", Step(app, inputs=["in"], body=look, name="look"), policy=FAULT, size=6, count=6
        ),
        scheduler,
        clock=RealtimeClock(),
    )
    ended = receiver.run_async()
    sender = App(compose, scheduler, clock=RealtimeClock())
    with sender.running():
        sender.wait_until_started(PATIENCE)
        publication = sender.topics()["export a"]
        assert isinstance(publication, Publication)
        await_subscribers(publication)
        for _ in range(2):
            sender.feed("feed").put(None)
    assert ended.result(PATIENCE).ended_by is EndedBy.FINISHED
    between = _between(sender, receiver)
    assert taken == [(value, 100 + value + between, {"value": value}) for value in (0, 1, 2)] * 2


# Time.


def _between(one: App, other: App) -> int:
    """Return what is added to the times of a program's clock to have those of another one's."""
    zeros = [each.scheduler().clock.time_base for each in (one, other)]
    assert zeros[0] is not None
    assert zeros[1] is not None
    return zeros[0].zero - zeros[1].zero


def _takes(app: Any, topic: str, taken: list[Any], count: int) -> None:
    def look(op: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        taken.append(op_input.get_acquisition_timestamp("in"))

    step = Step(app, inputs=["in"], body=look, name="look")
    app.import_topic(topic, step, policy=FAULT, size=4, count=count)


def _exporting(topic: str, offset: float) -> App:
    """Return a program that publishes what it is fed, and whose clock shows so many seconds when it begins."""
    return App(
        lambda app: app.export_topic(topic, FeedOp(app, name="feed"), "out", size=4),
        clock=RealtimeClock(initial_time_offset=offset),
    )


def test_frames_of_two_programs_are_joined_by_when_they_were_acquired() -> None:
    """The programs began 2.8 s apart, so that their clocks differ by as much."""
    taken: list[Any] = []

    def compose(app: Any) -> None:
        def pair(op: Any, op_input: Any, op_output: Any) -> None:
            taken.append((op_input.receive("left"), op_input.receive("right")))

        def setup(spec: Any) -> None:
            spec.join(aligned("30ms"))

        both = Step(app, inputs=["left", "right"], setup=setup, body=pair, name="pair")
        for name in "left", "right":
            app.import_topic(name, both, name, policy=FAULT, size=4, count=2)

    left, right = _exporting("left", 2.8), _exporting("right", 0.0)
    with left.running(), right.running():
        ended = App(compose, clock=RealtimeClock()).run_async()
        for name, app in ("left", left), ("right", right):
            app.wait_until_started(PATIENCE)
            await_subscribers(app.topics()[f"export {name}"])  # type: ignore[arg-type]
        for frame, at in ("first", 10**9), ("second", 10**9 + 2_800_000_000):
            left.feed("feed").put(frame, acq_timestamp=at + _between(right, left))
            right.feed("feed").put(frame, acq_timestamp=at)
        ended.result(PATIENCE)
    assert taken == [("first", "first"), ("second", "second")]


def test_a_timestamp_arrives_as_the_clock_of_the_importing_program_shows_it_or_since_1970() -> None:
    taken: list[Any] = []
    exporting = _exporting("a", 7.0)
    importing = App(lambda app: _takes(app, "a", taken, 3), clock=RealtimeClock(initial_time_offset=50.0))
    now = time.time_ns()
    with exporting.running():
        ended = importing.run_async()
        exporting.wait_until_started(PATIENCE)
        await_subscribers(exporting.topics()["export a"])  # type: ignore[arg-type]
        for timestamp in 8_000_000_000, now, None:
            exporting.feed("feed").put("frame", acq_timestamp=timestamp)
        ended.result(PATIENCE)
    assert taken == [8_000_000_000 + _between(exporting, importing), now, None]


@pytest.mark.parametrize("simulated", ["publisher", "subscriber"])
def test_simulated_time_is_not_mixed_with_real_time(simulated: str, caplog: pytest.LogCaptureFixture) -> None:
    taken: list[Any] = []
    base = None if simulated == "publisher" else TimeBase.of(0)
    with published(time_base=base, size=4) as publication:
        clock = RealtimeClock() if base is None else ManualClock()
        importing = App(lambda app: _takes(app, "a", taken, 2), clock=clock)
        ended = importing.run_async()
        await_subscribers(publication)
        for timestamp in 5, 6:
            publication.publish("frame", acq_timestamp=timestamp)
        ended.result(PATIENCE)
    assert taken == [None, None]
    who = "its publisher" if simulated == "publisher" else "this program"
    said = [each.getMessage() for each in caplog.records if "acquisition timestamps" in each.getMessage()]
    assert len(said) == 1
    assert f"which mean nothing here: {who} runs in simulated time" in said[0]
