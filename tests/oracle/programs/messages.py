"""What travels with a message: metadata, timestamps, any object."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, logger, operator, program


@program
def a_dict_and_none_can_be_emitted(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        values = [{"a": [1, 2], "b": "text"}, None, (1, "x"), "text"]
        source = operator(sdk, [], ["out"], lambda self, i, o, c: o.emit(values[self.ticks - 1], "out"))
        app.add_flow(
            source(app, sdk.CountCondition(app, len(values)), name="a"), logger(sdk, log)(app, name="b")
        )

    application(sdk, compose).run()


def _metadata(sdk: SimpleNamespace, log: list, policy: str) -> None:
    """Two sources stamp the same key; the joining operator merges them under a policy."""

    def stamp(n: int) -> Any:
        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            self.metadata.set("who", n)
            self.metadata.set(f"only{n}", n)
            o.emit(n, "out")

        return body

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("left")
        i.receive("right")
        log.append(sorted(self.metadata.items()))
        o.emit(0, "out")

    def last(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("in")
        log.append(sorted(self.metadata.items()))

    def compose(app: Any) -> None:
        app.enable_metadata(True)
        join = operator(sdk, ["left", "right"], ["out"], take)(app, name="join")
        join.metadata_policy = getattr(sdk.MetadataPolicy, policy)
        for n, port in enumerate(("left", "right")):
            source = operator(sdk, [], ["out"], stamp(n))
            app.add_flow(source(app, sdk.CountCondition(app, 2), name=f"s{n}"), join, {("out", port)})
        app.add_flow(join, operator(sdk, ["in"], [], last)(app, name="last"))

    application(sdk, compose).run()


@program
def metadata_update(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "UPDATE")


@program
def metadata_reject(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "REJECT")


@program
def metadata_raise(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "RAISE")


@program
def metadata_inplace_update(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "INPLACE_UPDATE")


@program
def metadata_default_policy(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 1), name="a")
        log.append([a.metadata_policy.name, app.is_metadata_enabled, a.is_metadata_enabled])
        app.add_operator(a)

    application(sdk, compose).run()


@program
def an_acquisition_timestamp_travels(sdk: SimpleNamespace, log: list) -> None:
    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("in")
        log.append([i.get_acquisition_timestamp("in"), i.get_acquisition_timestamps("in")])

    def compose(app: Any) -> None:
        source = operator(
            sdk,
            [],
            ["out"],
            lambda self, i, o, c: o.emit(1, "out", acq_timestamp=500 + self.ticks if self.ticks < 3 else -1),
        )
        app.add_flow(
            source(app, sdk.CountCondition(app, 3), name="a"), operator(sdk, ["in"], [], take)(app, name="b")
        )

    application(sdk, compose).run()


@program
def metadata_set_twice_under_the_default_policy(sdk: SimpleNamespace, log: list) -> None:
    def body(self: Any, i: Any, o: Any, c: Any) -> None:
        self.metadata.set("key", 1)
        self.metadata.set("key", 2)
        log.append(self.metadata.get("key"))

    def compose(app: Any) -> None:
        app.add_operator(operator(sdk, [], [], body)(app, sdk.CountCondition(app, 1), name="a"))

    application(sdk, compose).run()


@program
def metadata_through_a_plain_operator(sdk: SimpleNamespace, log: list) -> None:
    def first(self: Any, i: Any, o: Any, c: Any) -> None:
        if self.ticks == 1:
            self.metadata.set("frame", self.ticks)
        o.emit(self.ticks, "out")

    def last(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("in")
        log.append(sorted(self.metadata.items()))

    def compose(app: Any) -> None:
        middle = operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in"), "out"))
        a = operator(sdk, [], ["out"], first)(app, sdk.CountCondition(app, 2), name="a")
        b = middle(app, name="b")
        app.add_flow(a, b)
        app.add_flow(b, operator(sdk, ["in"], [], last)(app, name="c"))

    application(sdk, compose).run()
