"""The line on a terminal that shows what a run does."""

from __future__ import annotations

import io
import re
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.conditions import CountCondition
from headrace.core import Progress
from headrace.observe import progress_line
from headrace.observe.progress_line import ProgressLine
from tests.harness import PATIENCE, App, Step, run, sink, wait_until

pytestmark = pytest.mark.usefixtures("no_device_yet")  # most of these programs use no device


class Terminal(io.StringIO):
    """A terminal that records what is written, and announces it."""

    def __init__(self, is_terminal: bool = True) -> None:
        super().__init__()
        self.is_terminal = is_terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        self.written.set()
        return written


def line_of(*readings: tuple[float, Progress], latency: float | None = None, columns: int = 200) -> str:
    """Return the line after the given readings."""
    progress = iter([reading for _, reading in readings])
    line = ProgressLine(lambda: next(progress), lambda: latency)
    text = ""
    for now, _ in readings:
        text = line.update(now, columns)
    return text


def reading(camera: int, show: int, dropped: int = 0) -> Progress:
    return Progress(
        "Live",
        True,
        {"camera": camera, "show": show},
        ("camera",),
        dropped={"show.in": dropped} if dropped else {},
    )


def test_the_line_has_time_rates_latency_and_drops() -> None:
    text = line_of(
        (10, reading(0, 0)), (75, reading(100, 100)), (75.5, reading(115, 1100, 7)), latency=0.0123
    )
    assert text == "0:01:05  Live  2,030 computes/s  camera 30.0/s  latency 12.3 ms  7 dropped"


def test_many_sources_are_one_figure() -> None:
    counts = dict.fromkeys("abc", 0)
    later = dict.fromkeys("abc", 50)
    sources = ("a", "b", "c")
    text = line_of((0, Progress("Live", True, counts, sources)), (1, Progress("Live", True, later, sources)))
    assert text == "0:00:01  Live  150 computes/s  3 sources 150/s"


def test_a_narrow_terminal_gets_a_shorter_line() -> None:
    text = line_of((0, reading(0, 0)), (1, reading(100, 100)), columns=20)
    assert text == "0:00:01  Live  200…"
    assert len(text) < 20


def shown(monkeypatch: pytest.MonkeyPatch, terminal: Terminal, said: str = "") -> str:
    """Run an application with a progress line until the line was written; return what the terminal got."""
    monkeypatch.setenv("HEADRACE_PROGRESS", "1")
    monkeypatch.setattr(progress_line, "PERIOD", 0.001)
    monkeypatch.setattr(sys, "stderr", terminal)

    def wait(self: Step, op_input: Any, op_output: Any) -> None:
        while terminal.is_terminal and "computes/s" not in terminal.getvalue():
            assert terminal.written.wait(PATIENCE)
            terminal.written.clear()
        if said:
            print(said, file=sys.stderr)

    run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=wait, name="only")))
    assert sys.stderr is terminal
    return terminal.getvalue()


def test_a_run_shows_the_line_and_then_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    written = shown(monkeypatch, Terminal())
    assert re.search(r"\r\x1b\[K(╌{10}   0%  )?0:00:00  App  0\.0 computes/s  only 0\.0/s", written)
    assert written.endswith("\r\x1b[K'App' finished after 0.000 s: 1 compute\n")
    assert not [thread for thread in threading.enumerate() if thread.name == "progress line"]


def test_what_the_program_prints_begins_on_an_empty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\r\x1b[Khello\n" in shown(monkeypatch, Terminal(), said="hello")


@pytest.mark.parametrize("first", ["line", "hello\n"])
def test_the_line_and_what_the_program_prints_are_not_mixed(first: str) -> None:
    """One thread shows the line, another prints. The second begins while the first writes."""

    class Shared(Terminal):
        """A terminal on which the second thread begins after the line, or before what the program prints."""

        def write(self, text: str) -> int:
            if text == first == "hello\n":
                self.begin_second()
            written = super().write(text)
            if text.endswith(first) and first == "line":
                self.begin_second()
            return written

        def begin_second(self) -> None:
            second.start()
            wait_until(lambda: second in lock.wanted or not second.is_alive(), "the second thread's turn")

    class Lock:
        """A reentrant lock that knows who wanted it."""

        def __init__(self) -> None:
            self.wanted: list[threading.Thread] = []
            self._lock = threading.RLock()

        def __enter__(self) -> None:
            self.wanted.append(threading.current_thread())
            self._lock.acquire()

        def __exit__(self, *error: object) -> None:
            self._lock.release()

    terminal = Shared()
    screen: Any = progress_line._Screen(terminal)
    lock = screen._lock = Lock()
    program = progress_line._Erasing(terminal, screen)
    actions = {"line": lambda: screen.show("line"), "hello\n": lambda: program.write("hello\n")}
    first_action = actions.pop(first)
    (second_action,) = actions.values()
    second = threading.Thread(target=second_action)
    first_action()
    second.join()
    expected = {"line": "\r\x1b[Kline\r\x1b[Khello\n", "hello\n": "hello\n\r\x1b[Kline"}
    assert terminal.getvalue() == expected[first]


def test_a_line_that_the_program_has_begun_is_not_overwritten() -> None:
    terminal = Terminal()
    screen = progress_line._Screen(terminal)
    program = progress_line._Erasing(terminal, screen)
    for text in ("hello", "", "\n"):
        program.write(text)
        screen.show("line")
    assert terminal.getvalue() == "hello\n\r\x1b[Kline"


def test_a_signal_handler_may_print_while_the_line_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Terminal):
        """A terminal in whose writes a signal handler prints."""

        is_interrupted = False

        def write(self, text: str) -> int:
            if text == "\r\x1b[K" and not self.is_interrupted:
                self.is_interrupted = True
                print("interrupted", file=sys.stderr)
            return super().write(text)

    written: list[str] = []
    thread = threading.Thread(
        target=lambda: written.append(shown(monkeypatch, Interrupted(), said="hello")), daemon=True
    )
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert "interrupted\n" in written[0]
    assert "hello\n" in written[0]


def test_nothing_is_written_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(is_terminal=False)) == ""


@pytest.mark.parametrize("choice", ["", "0", "off"])
def test_nothing_is_written_unless_asked_for(monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    terminal = Terminal()
    monkeypatch.setenv("HEADRACE_PROGRESS", choice)
    monkeypatch.setattr(sys, "stderr", terminal)
    run(lambda app: app.add_operator(Step(app, CountCondition(app, 1))))
    assert terminal.getvalue() == ""


def test_a_wrong_choice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PROGRESS", "perhaps")
    with pytest.raises(ValueError, match="HEADRACE_PROGRESS=perhaps: must be one of 1, true"):
        App(lambda app: app.add_operator(Step(app, CountCondition(app, 1)))).run()


def test_the_latency_of_a_tracked_run_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TRACK", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HEADRACE_PROGRESS", "1")
    monkeypatch.setattr(progress_line, "PERIOD", 0.001)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    def emit(self: Step, op_input: Any, op_output: Any) -> None:
        op_output.emit(1, "out")
        if self.ticks == 3:
            while "latency" not in terminal.getvalue():
                assert terminal.written.wait(PATIENCE)
                terminal.written.clear()

    def compose(app: App) -> None:
        app.add_flow(Step(app, CountCondition(app, 3), outputs=["out"], body=emit), sink(app, []))

    run(compose)
    assert re.search(r"  latency [\d.e-]+ ms", terminal.getvalue())


def test_of_two_runs_at_once_the_first_has_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PROGRESS", "1")
    monkeypatch.setattr(sys, "stderr", Terminal())

    def inner(self: Step, op_input: Any, op_output: Any) -> None:
        before = sys.stderr
        run(lambda app: app.add_operator(Step(app, CountCondition(app, 1))))
        assert sys.stderr is before

    run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=inner)))
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.getvalue().count("finished") == 1


def test_a_run_with_a_known_end_knows_how_much_is_done() -> None:
    seen: list[float | None] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            seen.append(app.progress().fraction)

        app.add_operator(Step(app, body=body, name="source"))

    run_app = App(compose)
    run_app.run(max_messages=4)
    assert seen == [0.0, 0.25, 0.5, 0.75]
    assert run_app.progress().fraction is None


def test_the_line_of_a_run_with_a_known_end_begins_with_a_bar_and_tells_the_time_that_is_left() -> None:
    done = [0.0]
    line = ProgressLine(lambda: Progress("app", True, {"a": 1}, ("a",), fraction=done[0]), lambda: None)
    line.update(0.0, 80)
    done[0] = 0.25
    assert line.update(30.0, 80).startswith("━━╌╌╌╌╌╌╌╌  25%  0:00:30 of 0:02:00  app")


def test_a_narrow_terminal_has_room_for_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("HEADRACE_PROGRESS", "1")
    monkeypatch.setattr(progress_line, "PERIOD", 0.001)
    monkeypatch.setattr(sys, "stderr", terminal)

    def wait(self: Step, op_input: Any, op_output: Any) -> None:
        wait_until(lambda: "%" in terminal.getvalue(), "the bar is shown")

    App(lambda app: app.add_operator(Step(app, body=wait, name="camera_with_a_long_name"))).run(
        max_messages=2
    )
    lines = re.sub(r"\x1b\[[\d;]*[mK]", "", terminal.getvalue()).split("\r")
    assert {len(line) for line in lines if "%" in line} == {49}


def test_a_notebook_shows_the_line_below_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)
    display = SimpleNamespace(HTML=str, display=lambda html, display_id: handle)
    notebook = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()), display=display)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setenv("HEADRACE_PROGRESS", "1")
    monkeypatch.setattr(progress_line, "PERIOD", 0.001)
    assert progress_line.is_wanted()

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            count = len(shown)
            # The second line from now on was made after this compute had begun.
            wait_until(lambda: len(shown) > count + 1, "the line is shown twice")

        app.add_operator(Step(app, body=body, name="source"))

    app = App(compose)
    app.name = "<b>left & right"
    app.run(max_messages=3)
    assert any("━╌╌╌╌  67%  0:00:0" in each for each in shown)
    assert any("&lt;b&gt;left &amp; right" in each for each in shown)
    assert not any("<b>" in each for each in shown)
    assert shown[-1] == ""
