"""The dashboard: what a page is told, what it may ask for, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from yarl import URL

from headrace import CountCondition, Subgraph
from headrace.core import Operator, OperatorSpec
from headrace.observe import Dashboard, Watcher, watch
from headrace.observe.dashboard.time_line import CELL
from tests._web.clients import ask, connect, get, token, until
from tests.harness import App, Step
from tests.harness.threads import wait_until
from tests.observe.dashboard.dashboards import HOSTILE, HOSTILE_LINE, Watched, watched


@pytest.fixture
def one() -> Iterator[Watched]:
    with watched() as one:
        yield one


@pytest.fixture(scope="module")
def shared() -> Iterator[Watched]:
    """A run that no test changes."""
    with watched() as shared:
        yield shared


async def next_of(socket: Any, kind: str, is_it: Callable[[Any], Any] = lambda message: True) -> Any:
    """Return the next message of a type for which a function holds; confirm figures as a page does."""
    async for message in socket:
        found = json.loads(message.data)
        if found["type"] == "figures":
            await socket.send_str('{"type": "shown"}')
        if found["type"] == kind and is_it(found):
            return found
    raise AssertionError(f"closed with {socket.close_code}")


def talk(one: Watched, action: Callable[[Any], Any]) -> Any:
    """Run an action with a connected page."""

    async def run(session: Any, base: str) -> Any:
        async with connect(session, base, one.server) as socket:
            return await action(socket)

    return ask(one.server, run)


def put(one: Watched, parameter: str, body: str, **options: Any) -> tuple[int, Any]:
    """Ask for the change of a parameter of the filter, and return the status and the answer."""
    given = {"headers": {"Authorization": "Bearer the-token"}, **options}

    async def action(session: Any, base: str) -> Any:
        async with session.put(f"{base}/parameters/filter/{parameter}", data=body, **given) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    return ask(one.server, action)


# What a page is told.


def test_a_page_is_told_the_graph_first(shared: Watched) -> None:
    async def action(socket: Any) -> Any:
        return json.loads((await socket.receive()).data)

    graph = talk(shared, action)
    assert graph["type"] == "graph"
    assert [operator["name"] for operator in graph["operators"]] == ["source", "filter", HOSTILE, "slow"]
    assert [operator["kind"] for operator in graph["operators"]] == ["Step", "Filter", "Step", "Step"]
    assert [(flow["from"], flow["to"]) for flow in graph["flows"]] == [(0, 1), (1, 2), (1, 3)]
    assert {flow["size"] for flow in graph["flows"]} == {1}
    kinds = {each["name"]: each["kind"] for each in graph["parameters"]}
    assert kinds == {
        "gain": "float",
        "taps": "int",
        "is_on": "bool",
        "mode": "str",
        "label": "str",
        "table": "other",
    }
    gain, mode = graph["parameters"][0], graph["parameters"][3]
    assert (gain["minimum"], gain["maximum"], gain["headline"]) == (0.0, 8.0, "How loud")
    assert mode["choices"] == ["soft", "hard"]


def graph_of(compose: Any) -> Any:
    """Return the graph that the page of a run is told."""
    told: list[Any] = []

    class Told(Dashboard):
        def begin(self, run: Any) -> None:
            super().begin(run)
            told.append(self._page.graph())

    app = App(compose)
    Told(app, announce=lambda url: None)
    app.run()
    return told[0]


def test_a_page_is_told_which_names_are_those_of_subgraphs() -> None:
    class Pair(Subgraph):
        def compose(self) -> None:
            for name in ("one", "two"):
                self.add_operator(Step(self, CountCondition(self, 1), name=name))

    told = graph_of(lambda app: Pair(app, name="left"))
    assert told["subgraphs"] == ["left"]
    assert [operator["name"] for operator in told["operators"]] == ["left.one", "left.two"]


def test_flows_that_close_a_cycle_are_marked() -> None:
    def compose(app: Any) -> None:
        first = Step(app, CountCondition(app, 1), outputs=["out"], name="first")
        loop = Step(
            app,
            inputs=[("in", {"size": 1}), "back"],
            outputs=["out"],
            name="loop",
        )
        app.add_flow(first, loop, {("out", "in")})
        app.add_flow(loop, loop, {("out", "back")})

    assert [(flow["from"], flow["to"], flow["closes"]) for flow in graph_of(compose)["flows"]] == [
        (0, 1, False),
        (1, 1, True),
    ]


def test_figures_show_what_went_wrong_in_computes() -> None:
    told: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any) -> None:
            told.append(app.board._page.figures()["operators"][0]["faults"])
            app.scheduler().clock.sleep_for("1s")
            if self.ticks < 3:
                raise ValueError

        policy = {"retry": 1, "skip": 1}
        app.add_operator(
            Step(app, CountCondition(app, 4), body=body, on_error=policy, deadline="900ms", name="a")
        )

    app: Any = App(compose)
    app.board = Dashboard(app, announce=lambda url: None)
    app.run()
    assert told == [
        {},
        {"retries": 1, "stuck": 1},
        *[{"skipped_errors": 1, "retries": 1, "stuck": n} for n in (2, 3)],
    ]


def test_figures_move(shared: Watched) -> None:
    async def action(socket: Any) -> Any:
        first = await next_of(socket, "figures", lambda found: found["operators"][1]["count"] > 10)
        return first, await next_of(
            socket, "figures", lambda found: found["operators"][1]["count"] > first["operators"][1]["count"]
        )

    first, later = talk(shared, action)
    source, worker = later["operators"][:2]
    assert later["now"] > first["now"]
    assert later["state"] == "running"
    assert source["rate"] > 0
    median, p99 = worker["host"]
    assert 0 < median <= p99
    assert worker["gpu"] is None
    assert later["queues"][2]["dropped"] > 0, "of the sink that does not take anything"
    assert later["queues"][2]["depth"] == 1
    assert {tuple(path["names"]) for path in later["paths"]} >= {("source", "filter", HOSTILE)}
    goal, unreached = later["goals"]
    assert goal["is_met"] is False
    assert (unreached["is_met"], unreached["sent"]) == (None, 0)
    assert 0 < goal["late"] <= goal["sent"]
    assert "took" in goal["last"]


def test_every_interval_and_every_line_of_the_log_is_sent_once(shared: Watched) -> None:
    async def action(socket: Any) -> Any:
        found = []
        while not found or found[-1]["operators"][0]["count"] < 60:
            found.append(await next_of(socket, "figures"))
        return found

    found = talk(shared, action)
    intervals = [
        (operator, start, length)
        for message in found
        for operator, is_gpu, rows in message["line"]
        for start, length in zip(rows[::4], rows[1::4], strict=True)
        if not is_gpu
    ]
    assert len(intervals) >= 60
    # Many computes that become known at once are summed up in cells. Two such pieces can meet in a cell.
    starts = [interval[:2] for interval in intervals if interval[2] != CELL // 1000]
    assert len(starts) == len(set(starts))
    lines = [line for message in found for line in message["log"] if line[2] == "test.log"]
    assert {(level, text) for _, level, _, text in lines} == {("WARNING", HOSTILE_LINE)}
    times = [time for time, *_ in lines]
    assert len(times) == len(set(times)) >= 3


def test_a_page_that_does_not_confirm_gets_no_more_and_all_of_it_later(one: Watched) -> None:
    async def action(socket: Any) -> Any:
        await socket.receive()  # the graph
        first = [json.loads((await socket.receive()).data) for _ in range(2)]
        (client,) = one.server._clients
        line, seen = one.server.time_line, client.seen["piece"]
        await until(lambda: line.last_piece >= seen + 9)  # three pieces of each operator that computes
        waiting = client._queue.qsize()
        await socket.send_str('{"type": "shown"}')
        return first, waiting, json.loads((await socket.receive()).data)

    first, waiting, later = talk(one, action)
    assert waiting == 0, "none is queued"
    assert len(first) == 2
    assert len(later["line"]) >= 9
    assert {operator for operator, is_gpu, _ in later["line"] if not is_gpu} >= {0, 1, 2}


def test_what_happens_is_known_sooner_while_somebody_looks(shared: Watched) -> None:
    async def action(socket: Any) -> None:
        await until(lambda: shared.dashboard.longest_period == 0.5)

    asyncio.run(until(lambda: shared.dashboard.longest_period == 2.0))  # the page before has gone
    talk(shared, action)
    asyncio.run(until(lambda: shared.dashboard.longest_period == 2.0))


def test_the_time_that_is_known_stays_that_of_the_newest_compute(one: Watched) -> None:
    async def action(socket: Any) -> Any:
        await next_of(socket, "figures", lambda found: found["operators"][1]["count"] > 10)
        await socket.send_str('{"type": "command", "do": "pause"}')
        one.app.wait_until_paused()
        total = sum(node.computes for node in one.app._headrace.engine.nodes)

        def is_all_known(found: Any) -> bool:
            return sum(operator["count"] for operator in found["operators"]) == total

        return [await next_of(socket, "figures", is_all_known) for _ in range(3)]

    found = talk(one, action)
    assert found[0]["now"] < found[2]["now"]
    assert 0 < found[0]["seen"] == found[2]["seen"] < found[0]["now"]
    assert all(0 <= each["age"] <= each["now"] for each in found)


def test_the_age_of_what_is_shown_is_told(one: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    now = one.server._observation.now() + 10_000_000
    observation = SimpleNamespace(now=lambda: now, known_until=now - 7_000_000, watchers=[])
    monkeypatch.setattr(one.server, "_observation", observation)
    assert one.server.figures()["age"] == 7000


def test_the_last_figures_come_with_the_end() -> None:
    async def action(session: Any, base: str) -> Any:
        async with connect(session, base, one.server) as socket:
            await next_of(socket, "figures")
            ending = asyncio.get_running_loop().run_in_executor(None, one.end)
            last = None
            async for message in socket:
                found = json.loads(message.data)
                if found["type"] == "ended":
                    break
                last = found
            await socket.close()
            await ending
            return last

    with watched() as one:
        last = ask(one.server, action)
    assert last["state"] == "ended"
    assert last["operators"][1]["count"] == one.app.outcome.operators["filter"].computes


def test_goals_are_judged_before_the_last_figures() -> None:
    told: list[Any] = []

    class Told(Dashboard):
        def end(self, outcome: Any) -> None:
            told.append(self._page.figures())
            super().end(outcome)

    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 1),
            outputs=["out", "never"],
            body=lambda step, op_input, op_output: op_output.emit(1, "out"),
            name="source",
        )
        app.add_flow(
            source, Step(app, inputs=["in", "other"], name="sink"), {("out", "in"), ("never", "other")}
        )

    app = App(compose)
    Told(app, announce=lambda url: None)
    app.expect("source->sink", p99="1h")
    app.run()
    (goal,) = told[0]["goals"]
    assert (goal["is_met"], goal["outstanding"], goal["lost"]) == (None, 1, 0)


# What a page may ask for.


def test_a_parameter_is_changed_by_http(one: Watched) -> None:
    assert put(one, "gain", "4") == (200, {"value": 4.0})

    async def action(socket: Any) -> Any:
        await next_of(socket, "figures", lambda found: found["parameters"][0] == 4.0)

        await until(lambda: 4.0 in one.taken)

    talk(one, action)
    assert one.filter.gain == 4.0


def test_the_parameters_of_a_run_are_listed_with_their_values(shared: Watched) -> None:
    status, text, _ = get(shared.server, f"/parameters?{token(shared.server)}")
    listed = json.loads(text)["parameters"]
    assert status == 200
    assert [(each["name"], each["value"]) for each in listed[:4]] == [
        ("gain", 1.0),
        ("taps", 3),
        ("is_on", True),
        ("mode", "soft"),
    ]
    assert listed[0] == {
        "operator": "filter",
        "name": "gain",
        "kind": "float",
        "headline": "How loud",
        "minimum": 0.0,
        "maximum": 8.0,
        "choices": [],
        "value": 1.0,
    }
    assert get(shared.server, "/parameters")[0] == 403


@pytest.mark.parametrize(
    ("parameter", "value", "text"),
    [
        ("gain", 9, "must be at most 8.0"),
        ("gain", "<b>", "must be a float, not a str"),
        ("gain", True, "must be a float, not a bool"),
        ("taps", 4, "must not be 4"),
        ("mode", HOSTILE, "must be one of 'soft', 'hard'"),
        ("table", "x", "can be changed by the program only"),
        ("none", 1, "There is no such parameter"),
        ("__class__", "x", "There is no such parameter"),
        ("compute", "x", "There is no such parameter"),
    ],
)
def test_a_wrong_value_is_answered_with_what_is_wrong(
    shared: Watched, parameter: str, value: Any, text: str
) -> None:
    before = (shared.filter.gain, shared.filter.taps, shared.filter.mode, shared.filter.table)
    status, answer = put(shared, parameter, json.dumps(value))
    assert status == (404 if "no such" in text else 400)
    assert text in answer["error"]
    assert (shared.filter.gain, shared.filter.taps, shared.filter.mode, shared.filter.table) == before


def test_a_check_that_raises_anything_is_answered(one: Watched) -> None:
    one.filter.live_parameters["taps"].check = lambda value: [][value]
    assert put(one, "taps", "7") == (400, {"error": "IndexError: list index out of range"})


@pytest.mark.parametrize("body", ["", "nonsense", "[1]", "{}", "NaN", "null", "1" + 400 * "0", "[" * 2000])
def test_a_body_that_is_no_simple_value_is_refused(shared: Watched, body: str) -> None:
    status, answer = put(shared, "gain", body)
    assert (status, shared.filter.gain) == (400, 1.0)
    assert "number" in answer["error"]


def test_a_body_that_is_too_long_is_refused(shared: Watched) -> None:
    assert put(shared, "label", json.dumps("x" * 5000))[0] == 413


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer another"},
        {"Authorization": "Bearer the-token", "Origin": "http://elsewhere.example"},
        {"Authorization": "Bearer the-token", "Host": "elsewhere.example"},
    ],
)
def test_without_the_token_or_from_elsewhere_nothing_is_changed(
    shared: Watched, headers: dict[str, str]
) -> None:
    assert put(shared, "gain", "2", headers=headers)[0] in (403, 421)
    assert shared.filter.gain == 1.0


def test_the_name_of_an_operator_may_have_any_characters() -> None:
    taken: list[Any] = []

    class Odd(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.param("gain", 1.0, live=True)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            async def action(session: Any, base: str) -> Any:
                way = f"{base}/parameters/{quote(self.name, safe='')}/gain?token=mine"
                async with session.put(URL(way, encoded=True), data="2.5") as answer:
                    return answer.status, await answer.json()

            taken.append(ask(dashboard._page, action))

    app = App(lambda app: app.add_operator(Odd(app, CountCondition(app, 1), name="a/b % ü?")))
    dashboard = Dashboard(app, token="mine", announce=lambda url: None)
    app.run()
    assert taken == [(200, {"value": 2.5})]


def test_a_page_pauses_steps_resumes_and_stops(one: Watched) -> None:
    async def action(socket: Any) -> Any:
        async def say(**fields: Any) -> None:
            await socket.send_str(json.dumps(fields))

        await say(type="command", do="pause")
        await next_of(socket, "figures", lambda found: found["state"] == "paused")
        assert one.app.wait_until_paused()
        before = sum(node.computes for node in one.app._headrace.engine.nodes)
        await say(type="step", count=3)
        await until(lambda: sum(node.computes for node in one.app._headrace.engine.nodes) >= before + 3)
        assert one.app.wait_until_paused()
        assert sum(node.computes for node in one.app._headrace.engine.nodes) == before + 3
        await say(type="command", do="resume")
        await next_of(socket, "figures", lambda found: found["state"] == "running")
        await say(type="command", do="stop")
        await next_of(socket, "ended")
        await socket.close()

    talk(one, action)
    assert one.future.result().ended_by.value == "stopped"


def test_an_announcement_that_raises_leaves_no_server_behind() -> None:
    def refuse(url: str) -> None:
        raise BrokenPipeError("nobody reads")

    before, handlers = set(threading.enumerate()), list(logging.getLogger().handlers)
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 1))))
    dashboard = Dashboard(app, announce=refuse)
    for _ in range(2):
        with pytest.raises(BrokenPipeError):
            app.run()
        assert dashboard.url == ""
    assert set(threading.enumerate()) <= before
    assert logging.getLogger().handlers == handlers


# What is refused.


def test_the_page_allows_nothing_from_elsewhere(shared: Watched) -> None:
    status, text, headers = get(shared.server, f"/?{token(shared.server)}")
    assert status == 200
    directives = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert re.fullmatch(r"'nonce-[\w-]{16}'", directives["script-src"])
    assert directives["default-src"] == "'none'"
    assert "://" not in text.replace("}://${location.host}", "")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert not re.search(r"\sstyle=|\son\w+=\"", text), "the policy would not let it through"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("nonsense", 1007),
        ("[]", 1007),
        ('{"type": "command", "do": "__class__"}', 1007),
        ('{"type": "command"}', 1007),
        ('{"type": "step"}', 1007),
        ('{"type": "step", "count": 0}', 1007),
        ('{"type": "step", "count": 1e9}', 1007),
        ('{"type": "step", "count": 10001}', 1007),
        ('{"type": "eval", "code": "1"}', 1007),
        ("x" * 5000, 1009),
        (b"bytes", 1003),
    ],
)
def test_a_huge_or_malformed_message_ends_the_connection(
    shared: Watched, message: str | bytes, code: int
) -> None:
    async def action(socket: Any) -> Any:
        with contextlib.suppress(ConnectionError):
            await (socket.send_str if isinstance(message, str) else socket.send_bytes)(message)
        async for _ in socket:
            pass
        return socket.close_code

    assert talk(shared, action) in (code, 1006)
    assert (shared.filter.gain, shared.app.is_paused) == (1.0, False)


# Its life.


def test_the_address_stays_for_the_next_run() -> None:
    urls: list[str] = []
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 3), name="it")))
    dashboard = Dashboard(app, announce=urls.append)
    app.run()
    app.run()
    assert urls[0] == urls[1]
    assert dashboard.url == ""


def test_the_environment_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_DASHBOARD", "1")
    monkeypatch.setenv("HEADRACE_DASHBOARD_TOKEN", "mine")
    App(lambda app: app.add_operator(Step(app, CountCondition(app, 3), name="it"))).run()
    printed = capsys.readouterr()
    assert re.fullmatch(r"dashboard: http://127.0.0.1:\d+/\?token=mine\n", printed.err)
    assert printed.out == ""


@pytest.mark.parametrize("given", ["127.0.0.1:", "127.0.0.1:x", ":70000"])
def test_a_wrong_address_is_an_error_that_says_what_is_right(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("HEADRACE_DASHBOARD", given)
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 3), name="it")))
    with pytest.raises(ValueError, match="must be 1 or host:port"):
        app.run()


def test_a_port_that_is_taken_is_an_error_and_nothing_is_left(shared: Watched) -> None:
    port = urlsplit(shared.dashboard.url).port
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 3), name="it")))
    Dashboard(app, port=port or 0)
    with pytest.raises(RuntimeError, match=f"the dashboard cannot listen on 127.0.0.1:{port}"):
        app.run()
    assert app.outcome is None


def test_it_ends_if_another_watcher_cannot_begin() -> None:
    class Broken(Watcher):
        def begin(self, run: Any) -> None:
            raise ArithmeticError("broken")

    before = set(threading.enumerate())
    app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 3), name="it")))
    dashboard = Dashboard(app, announce=lambda url: None)
    watch(app, Broken())
    with pytest.raises(ArithmeticError, match="broken"):
        app.run()
    assert dashboard.url == ""
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("interval", [0, "-1s"])
def test_an_interval_is_more_than_nothing(interval: Any) -> None:
    with pytest.raises(ValueError, match="interval must be more than 0"):
        Dashboard(interval=interval)


def test_the_figures_of_the_run_are_served_to_prometheus(shared: Watched) -> None:
    def scrape() -> tuple[int, str, dict[str, str]]:
        return get(shared.server, f"/metrics?{token(shared.server)}")

    wait_until(lambda: 'le="+Inf",operator="filter"' in scrape()[1], "the first figures")
    status, text, headers = scrape()
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4")
    assert "# TYPE headrace_computes_total counter" in text


def test_the_figures_need_the_token_too(shared: Watched) -> None:
    assert get(shared.server, "/metrics")[0] == 403


def test_a_reader_sees_everything_and_changes_nothing() -> None:
    requests = [
        {"type": "command", "do": "pause"},
        {"type": "command", "do": "stop"},
        {"type": "step", "count": 1},
    ]
    with watched(read_token="look") as one:
        status, page, _ = get(one.server, "/?token=look")
        assert status == 200
        assert '"mayChange": false' in page
        assert '"mayChange": true' in get(one.server, f"/?{token(one.server)}")[1]
        assert get(one.server, "/metrics?token=look")[0] == 200
        for asked_for in requests:

            async def action(session: Any, base: str, asked_for: Any = asked_for) -> Any:
                async with session.ws_connect(f"{base}/ws?token=look", origin=base) as socket:
                    await next_of(socket, "figures")
                    await socket.send_str(json.dumps(asked_for))
                    async for _ in socket:
                        pass
                    return socket.close_code

            assert ask(one.server, action) == 1008
        assert get(one.server, "/parameters?token=look")[0] == 200
        reader = {"Authorization": "Bearer look"}
        assert put(one, "gain", "2", headers=reader) == (403, "This token may only read.\n")
        assert one.filter.gain == 1.0
        assert one.dashboard.url
        assert not one.app.is_paused
    app = App(lambda app: app.add_operator(Step(app, name="a")))
    Dashboard(app, token="same", read_token="same")
    with pytest.raises(ValueError, match="the token of readers must differ"):
        app.run()


def test_a_page_is_told_at_once_what_came_of_its_request() -> None:
    async def action(socket: Any) -> Any:
        await next_of(socket, "figures")
        await socket.send_str('{"type": "command", "do": "pause"}')
        return await next_of(socket, "figures")

    with watched(interval="1h") as one:
        assert talk(one, action)["state"] == "paused"


def test_the_page_is_told_of_operators_and_flows_that_are_added(one: Watched) -> None:
    async def run(socket: Any) -> Any:
        before = await next_of(socket, "graph")
        app = one.app
        app.wait_until_started()  # the page is served before; then the graph is only being made
        late = Step(
            app, inputs=["in"], body=lambda step, op_input, op_output: op_input.receive("in"), name="late"
        )
        app.add_flow(one.filter, late)
        after = await next_of(socket, "graph")
        shown = await next_of(
            socket, "figures", lambda found: len(found["operators"]) > 4 and found["operators"][4]["count"]
        )
        return before, after, shown

    before, after, shown = talk(one, run)
    names = [operator["name"] for operator in after["operators"]]
    assert names == [*(operator["name"] for operator in before["operators"]), "late"]
    assert {"from": names.index("filter"), "to": names.index("late")}.items() <= after["flows"][-1].items()
    assert shown["operators"][4]["count"] > 0
