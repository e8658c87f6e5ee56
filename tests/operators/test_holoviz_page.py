"""HolovizOp in a real browser: the picture, the events, the end."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from headrace import CountCondition, PeriodicCondition
from headrace.operators import HolovizOp
from headrace.resources import RealtimeClock
from headrace.schedulers import EventBasedScheduler
from headrace.viewer import Renderer
from tests._web.browser import chromium, new_page, wait_until
from tests.harness import App, Step

pytest.importorskip("aiohttp", reason="needs aiohttp to serve the page")

WIDTH, HEIGHT = 320, 180
TENSORS: list[dict[str, Any]] = [
    {"name": "image", "type": "color"},
    {"name": "box", "type": "rectangles", "color": [0, 1, 0, 1], "priority": 1},
    {"name": "oval", "type": "ovals", "color": [1, 0.5, 0, 1], "line_width": 3, "priority": 1},
    {"name": "label", "type": "text", "text": ["headrace"], "priority": 2},
]


def frame(number: int = 0) -> dict[str, np.ndarray]:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    image = np.stack([(x + number) % 256, y, 255 - x // 2], axis=-1).astype(np.uint8)
    return {
        "image": image,
        "box": np.array([[0.1, 0.3], [0.4, 0.8]], np.float32),
        "oval": np.array([[0.7, 0.5, 0.3, 0.4]], np.float32),
        "label": np.array([[0.05, 0.05, 0.15]], np.float32),
    }


class Running:
    """An application with a viewer that runs on a thread of its own."""

    def __init__(self, count: int = 100_000, changes: int = 1_000_000, **parameters: Any) -> None:
        self.viewer: Any = None

        def body(step: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(frame(min(step.ticks, changes)), "out")

        def compose(app: Any) -> None:
            source = Step(
                app,
                CountCondition(app, count),
                PeriodicCondition(app, "100ms"),
                outputs=["out"],
                body=body,
                name="source",
            )
            self.viewer = HolovizOp(
                app,
                tensors=TENSORS,
                width=WIDTH,
                height=HEIGHT,
                **{"window_title": "A test", "outlets": "page", **parameters},
            )
            app.add_flow(source, self.viewer, {("out", "receivers")})

        self.app = App(
            compose,
            lambda app, **settings: EventBasedScheduler(
                app, worker_thread_number=1, clock=RealtimeClock(app)
            ),
        )
        self.future: Future[Any] = self.app.run_async()
        wait_until(lambda: self.future.done() or getattr(self.viewer, "url", ""), "the page is served")

    def end(self) -> None:
        self.app.stop_execution()
        self.future.result()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    return new_page(browser, viewport={"width": 1000, "height": 700})


@pytest.fixture(scope="module")
def live() -> Iterator[Running]:
    """A run that no test ends."""
    one = Running(changes=1)
    yield one
    one.end()


@pytest.fixture
def running(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Make applications that are ended after the test."""
    before = set(threading.enumerate())
    made: list[Running] = []

    def make(**settings: Any) -> Running:
        made.append(Running(**settings))
        return made[-1]

    yield make
    for one in made:
        one.end()
    assert not left_since(before)


def left_since(before: set[threading.Thread]) -> list[str]:
    """Return the threads that are there since then, but for that of the device, which the process keeps."""
    names = [thread.name for thread in set(threading.enumerate()) - before]
    return [name for name in names if "headrace" in name and name != "headrace-sim"]


def open_page(page: Any, viewer: Any, width: int = 1000, height: int = 700) -> Any:
    page.goto("about:blank")  # what the last page still says is not an error of this one
    page.errors.clear()
    page.set_viewport_size({"width": width, "height": height})
    page.goto(viewer.url)
    wait_until(lambda: int(page.get_attribute("#picture", "data-pictures") or 0) > 1, "pictures", page)
    return page


def pixels_of(page: Any) -> np.ndarray:
    """Return what the page's canvas holds."""
    from PIL import Image

    url = page.evaluate("() => document.getElementById('picture').toDataURL('image/png')")
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return np.asarray(image.convert("RGB"))


def expected(number: int) -> np.ndarray:
    return Renderer(WIDTH, HEIGHT, TENSORS).render(frame(number))[..., :3]


def test_the_page_shows_the_picture_exactly_once_it_stands_still(tab: Any, running: Any) -> None:
    one = running(changes=3)
    page = open_page(tab, one.viewer)
    wait_until(lambda: one.viewer.frames_received > 5, "frames", page)
    one.end()
    state = page.locator("#state")
    wait_until(lambda: state.inner_text() == "ended", "the end", page)
    wait_until(lambda: page.get_attribute("#picture", "data-kind") == "exact", "the exact picture", page)
    assert (pixels_of(page) == expected(3)).all()
    assert page.title() == "A test"
    assert "The run has ended" in page.locator("#note").inner_text()
    assert all("WebSocket connection" in error or "ERR_CONNECTION" in error for error in page.errors)


def test_the_page_zooms_shows_values_and_saves_a_snapshot(tab: Any, running: Any) -> None:
    """To the pipeline nothing changes: places are those of the picture, and the window keeps its size."""
    sizes: list[Any] = []
    one = running(changes=3, on_event=lambda event: event["type"] == "resize" and sizes.append(event))
    open_page(tab, one.viewer)
    wait_until(lambda: one.viewer.frames_received > 5 and sizes, "frames", tab)
    known = len(sizes)
    before = tab.locator("#picture").bounding_box()
    tab.click("#larger")
    tab.click("#larger")
    tab.hover("#picture", position={"x": 4.2 * before["width"] / WIDTH, "y": 3.2 * before["height"] / HEIGHT})
    assert tab.locator("#picture").bounding_box()["width"] == pytest.approx(4 * before["width"])
    one.end()
    wait_until(lambda: tab.get_attribute("#picture", "data-kind") == "exact", "the exact picture", tab)
    text = tab.locator("#pixel").inner_text()
    column, row = (int(part) for part in text.partition(":")[0].split(","))
    assert [int(value) for value in text.partition(":")[2].split()] == list(expected(3)[row, column])
    assert (column, row) != (4, 3)
    for _ in range(3):
        tab.click("#smaller")
    assert tab.locator("#picture").bounding_box() == before
    assert len(sizes) == known
    with tab.expect_download() as saved:
        tab.click("#snapshot")
    image = pytest.importorskip("PIL.Image").open(saved.value.path())
    np.testing.assert_array_equal(np.asarray(image.convert("RGB")), expected(3))
    assert saved.value.suggested_filename == "A_test.png"


def test_the_page_switches_layers_off_and_on(tab: Any, running: Any) -> None:
    moved: list[Any] = []
    one = running(changes=3, on_event=lambda event: event["type"] == "cursor" and moved.append(event))
    page = open_page(tab, one.viewer)
    wait_until(lambda: one.viewer.frames_received > 5, "frames", page)
    page.click("#layers")
    boxes = page.locator("#boxes input")
    wait_until(lambda: boxes.count() == 4, "the layers", page)
    assert page.locator("#boxes").inner_text().split() == ["image", "box", "oval", "label"]
    box = boxes.nth(1)
    box.uncheck()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    wait_until(
        lambda: [boxes.nth(n).is_checked() for n in range(4)] == [True, False, False, True], "it", page
    )
    left = [spec for spec in TENSORS if spec["name"] not in ("box", "oval")]
    wanted = Renderer(WIDTH, HEIGHT, left).render(frame(3))[..., :3]
    box.check()
    box.uncheck()
    moved.clear()
    page.locator("#picture").hover()
    wait_until(lambda: moved, "what was done after the switches", page)
    one.end()
    wait_until(lambda: page.locator("#state").inner_text() == "ended", "the end", page)
    wait_until(lambda: page.get_attribute("#picture", "data-kind") == "exact", "the exact picture", page)
    assert (pixels_of(page) == wanted).all()


@pytest.fixture
def cell(live: Running) -> Iterator[int]:
    """Serve a page that shows the viewer as a notebook's cell does, and return its port."""

    class Notebook(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(live.viewer._repr_html_().encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("", 0), Notebook) as server:
        threading.Thread(target=server.serve_forever, name="notebook").start()
        yield server.server_port
        server.shutdown()


def test_a_notebook_of_this_machine_shows_the_page_in_a_cell(browser: Any, cell: int) -> None:
    page = new_page(browser)
    page.goto(f"http://localhost:{cell}/lab")
    picture = page.frame_locator("iframe").locator("#picture")
    wait_until(lambda: int(picture.get_attribute("data-pictures") or 0) > 1, "pictures", page)


def test_a_page_from_elsewhere_does_not(browser: Any, cell: int) -> None:
    page = new_page(browser)
    page.goto(f"http://127.0.0.2:{cell}/lab")
    wait_until(lambda: any("frame-ancestors" in error for error in page.errors), "a refusal", page)


def test_events_say_what_happened(browser: Any, running: Any) -> None:
    said: list[dict[str, Any]] = []
    one = running(on_event=said.append)
    page = open_page(new_page(browser, device_scale_factor=2), one.viewer)

    def events(kind: str) -> list[tuple[Any, ...]]:
        return [tuple(event.values())[1:] for event in said if event["type"] == kind]

    wait_until(lambda: events("resize"), "a size", page)
    box = page.locator("#picture").bounding_box()
    sizes = [box["width"], box["height"], box["width"] * 2, box["height"] * 2]
    assert events("resize")[-1] == tuple(map(round, sizes))

    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2, button="right")
    wait_until(lambda: len(events("button")) == 2, "a click", page)
    assert events("button") == [("right", "press", ()), ("right", "release", ())]
    assert events("cursor")[-1] == pytest.approx((WIDTH / 4, HEIGHT / 2), abs=1)

    page.mouse.wheel(0, 200)
    wait_until(lambda: events("scroll"), "the wheel", page)
    ((x, y),) = events("scroll")
    assert (x, y) in ((0.0, -2.0), (0.0, -1.0)), (
        "notches of the wheel; Chromium divides them by the scale of the screen"
    )

    page.keyboard.down("Shift")
    page.keyboard.press("KeyA")
    page.keyboard.up("Shift")
    page.keyboard.press("ArrowLeft")
    wait_until(lambda: len(events("key")) == 6, "keys", page)
    assert events("key") == [
        ("ShiftLeft", "press", ("shift",)),
        ("KeyA", "press", ("shift",)),
        ("KeyA", "release", ("shift",)),
        ("ShiftLeft", "release", ()),
        ("ArrowLeft", "press", ()),
        ("ArrowLeft", "release", ()),
    ]
    assert events("char") == [("A",)]
    assert not page.errors


def test_the_page_can_be_used_with_the_keyboard_alone(tab: Any, live: Running) -> None:
    page = open_page(tab, live.viewer)
    reached = []
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.id"))
    assert reached == ["layers", "smaller", "larger", "snapshot", "fullscreen", "close", "picture"]
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("() => document.activeElement.id") == "close", "Tab is not caught by the picture"


@pytest.mark.parametrize("interrupts", [False, True])
def test_closing_the_viewer_does_what_the_parameter_says(tab: Any, running: Any, interrupts: bool) -> None:
    called: list[int] = []
    one = running(
        on_event=lambda event: event["type"] == "close" and called.append(one.viewer.frames_received),
        interrupt_app_on_window_close=interrupts,
    )
    page = open_page(tab, one.viewer)
    page.click("#close")
    wait_until(lambda: called, "the event", page)
    # A run that is not interrupted ends by itself: the viewer takes no frame any more, so the source can send none.
    outcome = one.future.result()
    assert (outcome.ended_by.value == "stopped") == interrupts
    assert one.viewer.frames_received <= called[0] + 1, "the operator never runs again"
    assert len(called) == 1


def test_a_page_connects_again_to_a_viewer_that_comes_back(
    tab: Any, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_VIEW_TOKEN", "the-same")
    first = running()
    page = open_page(tab, first.viewer)
    monkeypatch.setenv("HEADRACE_VIEW_PORT", str(urlsplit(first.viewer.url).port))
    first.end()
    wait_until(lambda: page.locator("#state").inner_text() == "ended", "the end", page)
    running()
    wait_until(lambda: page.locator("#state").inner_text() == "live", "the second run", page)
    assert page.locator("#note").inner_text() == ""


def test_an_exception_in_the_function_for_events_comes_out_of_the_run(tab: Any, running: Any) -> None:
    def fail(event: dict[str, Any]) -> None:
        if event["type"] == "key":
            raise ArithmeticError("broken")

    one = running(on_event=fail)
    page = open_page(tab, one.viewer)
    page.focus("#picture")
    page.keyboard.press("KeyA")
    with pytest.raises(ArithmeticError, match="broken") as raised:
        one.future.result()
    assert "raised in on_event of a viewer, for the event 'key'" in raised.value.__notes__
    assert one.viewer.url == ""
    one.future = Future()
    one.future.set_result(None)


def test_threads_are_gone_after_an_exception_in_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_VIEW", "page")
    before = set(threading.enumerate())

    def body(step: Any, op_input: Any, op_output: Any) -> None:
        if step.ticks == 3:
            raise ArithmeticError("broken")
        op_output.emit(frame(), "out")

    def compose(app: Any) -> None:
        source = Step(app, outputs=["out"], body=body, name="source")
        app.add_flow(
            source, HolovizOp(app, tensors=TENSORS, width=WIDTH, height=HEIGHT), {("out", "receivers")}
        )

    with pytest.raises(ArithmeticError, match="broken"):
        App(compose).run()
    assert not left_since(before)
