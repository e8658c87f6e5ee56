"""The dashboard's page with a hundred operators: groups, zoom, search, and a time line that is not empty."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import PeriodicCondition
from headrace.observe import Dashboard
from headrace.resources import RealtimeClock
from headrace.schedulers import EventBasedScheduler
from tests._web.browser import chromium, new_page, wait_until
from tests.harness import App, Step

pytest.importorskip("aiohttp", reason="needs aiohttp to serve the page")

LINES, STAGES = 10, ["camera", "a_stage_whose_name_does_not_fit_into_its_box", *"cdefghi", "sink"]


def compose(app: Any) -> None:
    def work(step: Any, op_input: Any, op_output: Any) -> None:
        if step.name.endswith(".camera"):
            op_output.emit(1, "out")
        elif step.name.endswith(".sink"):
            op_input.receive("in")
        else:
            op_output.emit(op_input.receive("in"), "out")

    for line in range(LINES):
        last: Any = None
        period = "300ms" if line < 2 else "3s"  # those with goals; the others are to be seen
        for stage in STAGES:
            step = Step(
                app,
                *([PeriodicCondition(app, period)] if last is None else []),
                inputs=[] if last is None else ["in"],
                outputs=[] if stage == "sink" else ["out"],
                body=work,
                name=f"line{line}.{stage}",
            )
            if last is not None:
                app.add_flow(last, step)
            last = step


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def hundred() -> Iterator[Any]:
    app = App(
        compose,
        lambda app, **settings: EventBasedScheduler(app, worker_thread_number=1, clock=RealtimeClock(app)),
    )
    app.expect("line0.camera->line0.sink", p99="1ns")
    app.expect("line1.camera->line1.sink", p99="1h")
    urls: SimpleQueue[str] = SimpleQueue()
    dashboard = Dashboard(app, announce=urls.put)
    future = app.run_async()
    future.add_done_callback(lambda done: urls.put(""))  # of a run that could not begin
    yield SimpleNamespace(url=urls.get(), dashboard=dashboard)
    app.stop_execution()
    future.result()


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    """A page whose time line does not move by itself: to draw it sixty times a second takes a core."""
    return new_page(browser, reduced_motion="reduce")


@pytest.fixture
def page(tab: Any, hundred: Any) -> Iterator[Any]:
    """The page of the run, loaded anew."""
    tab.goto("about:blank")  # what the last page still says is not an error of this one
    tab.errors.clear()
    tab.set_viewport_size({"width": 1240, "height": 940})
    tab.goto(hundred.url)
    wait_until(lambda: tab.evaluate("() => Boolean(figures && pieces.length)"), "computes", tab)
    yield tab
    assert not tab.errors


def boxes(page: Any, selector: str) -> list[dict[str, float]]:
    return page.evaluate(
        "(selector) => [...document.querySelectorAll(selector)].map((e) => e.getBoundingClientRect().toJSON())",
        selector,
    )


def is_inside(inner: dict[str, float], outer: dict[str, float]) -> bool:
    return (
        inner["left"] >= outer["left"] - 1
        and inner["right"] <= outer["right"] + 1
        and inner["top"] >= outer["top"] - 1
        and inner["bottom"] <= outer["bottom"] + 1
    )


def lanes(page: Any) -> list[str]:
    """Return the names of the rows of the time line."""
    return page.evaluate("() => { drawLine(); return lineLanes; }")


def has_ink(page: Any, part: float) -> bool:
    """Return whether something is drawn in the last part of the time line's width."""
    return page.evaluate(
        """(part) => {
            drawLine();
            const canvas = document.getElementById('line'), width = Math.floor(canvas.width * part);
            const pixels = canvas.getContext('2d').getImageData(canvas.width - width, 0, width, canvas.height).data;
            // Computes are dark, the marks of the time are light.
            return pixels.some((value, at) => at % 4 === 0 && value < 150 && pixels[at + 3] > 60);
        }""",
        part,
    )


# Groups.


def test_operators_whose_names_begin_alike_are_one_box_at_first(page: Any) -> None:
    groups = page.locator("#graph [data-group]")
    assert groups.count() == LINES
    assert page.locator("#graph [data-operator]").count() == 0
    assert groups.first.get_attribute("aria-label").startswith("line0: 10 operators, the busiest is line0.")
    frame = boxes(page, "#graph-frame")[0]
    assert all(is_inside(box, frame) for box in boxes(page, "#graph .unit")), "all are to be seen"
    assert lanes(page) == [f"line{line}" for line in range(LINES)]


def test_subgraphs_begin_folded_in_a_small_graph_too(page: Any) -> None:
    folded = """() => {
        const all = graph;
        graph = { ...all, operators: all.operators.slice(0, 20), subgraphs: ["line1"] };
        makeGroups();
        const names = [...folded].map((group) => group.name);
        graph = all;
        makeGroups();
        return names;
    }"""
    assert page.evaluate(folded) == ["line1"]


def test_a_group_is_unfolded_in_the_graph_and_folded_by_its_button(page: Any) -> None:
    page.locator('[data-group="line3"]').click()
    assert page.locator("#graph [data-operator]").count() == len(STAGES)
    assert lanes(page)[3:5] == ["line3.camera", f"line3.{STAGES[1]}"]
    button = page.get_by_role("button", name="line3 10")
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    assert page.locator("#graph [data-operator]").count() == 0
    assert button.get_attribute("aria-expanded") == "false"


def test_names_can_be_read_where_all_of_a_large_graph_is_shown(page: Any) -> None:
    page.set_viewport_size({"width": 800, "height": 560})
    page.click("#unfold")
    page.click("#fit")
    assert page.evaluate("() => zoom") < 0.3
    names, frames = boxes(page, "#graph .unit .name"), boxes(page, "#graph .unit .box")
    assert len(names) == LINES * len(STAGES)
    assert min(name["height"] for name in names) >= 10
    assert all(is_inside(name, frame) for name, frame in zip(names, frames, strict=True))
    texts = page.evaluate(
        "() => [...document.querySelectorAll('#graph .unit .name')].map((e) => e.textContent)"
    )
    assert min(len(text) for text in texts) >= 2
    # Boxes that are high enough have two lines, and all names that fit are whole.
    page.set_viewport_size({"width": 1600, "height": 1000})
    page.click("#fit")
    texts = page.evaluate(
        "() => [...document.querySelectorAll('#graph .unit')].map((unit) => "
        "unit.querySelector('.name').textContent + unit.querySelector('.rest').textContent)"
    )
    assert {f"line{line}.camera" for line in range(LINES)} <= set(texts)


def test_a_group_is_unfolded_with_the_keyboard(page: Any) -> None:
    page.focus('[data-group="line0"]')
    page.keyboard.press("Enter")
    assert page.locator("#graph [data-operator]").count() == len(STAGES)
    assert page.evaluate("() => document.activeElement.textContent") == "line0 10"
    page.keyboard.press("Space")
    assert page.locator("#graph [data-operator]").count() == 0


# Zoom, pan, search.


def test_the_graph_is_zoomed_and_fitted_with_buttons_keys_and_the_wheel(page: Any) -> None:
    def zoom() -> float:
        return page.evaluate("() => zoom")

    fitted = zoom()
    page.click("#zoom-in")
    assert zoom() == pytest.approx(fitted * 1.3)
    page.click("#zoom-out")
    page.click("#zoom-out")
    assert zoom() == pytest.approx(fitted / 1.3)
    page.click("#fit")
    assert zoom() == fitted
    page.focus("#graph-frame")
    page.keyboard.press("+")
    assert zoom() == pytest.approx(fitted * 1.3)
    page.keyboard.press("0")
    assert zoom() == fitted
    frame = boxes(page, "#graph-frame")[0]
    page.mouse.move(frame["left"] + 50, frame["top"] + 50)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    wait_until(lambda: zoom() > fitted, "the wheel", page)


def test_a_graph_that_is_larger_than_its_frame_is_dragged_and_moved_with_arrow_keys(page: Any) -> None:
    page.click("#unfold")
    for _ in range(4):
        page.click("#zoom-in")
    before = page.evaluate("() => [$('graph-frame').scrollLeft, $('graph-frame').scrollTop]")
    frame = boxes(page, "#graph-frame")[0]
    page.mouse.move(frame["left"] + 500, frame["top"] + 200)
    page.mouse.down()
    page.mouse.move(frame["left"] + 420, frame["top"] + 150)
    page.mouse.up()
    after = page.evaluate("() => [$('graph-frame').scrollLeft, $('graph-frame').scrollTop]")
    assert [a - b for a, b in zip(after, before, strict=True)] == pytest.approx([80, 50], abs=2)
    page.focus("#graph-frame")
    page.keyboard.press("ArrowRight")
    wait_until(lambda: page.evaluate("() => $('graph-frame').scrollLeft") > after[0], "an arrow key", page)


def test_a_drag_that_begins_on_a_group_does_not_unfold_it(page: Any) -> None:
    (box,) = boxes(page, '[data-group="line0"]')
    page.mouse.move(box["left"] + 80, box["top"] + 20)
    page.mouse.down()
    page.mouse.move(box["left"] + 40, box["top"] + 20)
    page.mouse.up()
    assert page.locator("#graph [data-operator]").count() == 0


def test_a_search_shows_where_operators_are(page: Any) -> None:
    page.fill("#search", "LINE7.c")
    assert page.locator("#found").inner_text() == "2 of 100 operators"
    assert page.locator("#graph .unit.found").count() == 1
    assert page.locator("#graph .unit.other").count() == LINES - 1
    assert lanes(page) == ["line7"]
    page.press("#search", "Enter")
    assert page.locator('[data-operator="70"].found').count() == 1, "its group is unfolded"
    assert page.locator("#graph .unit.found").count() == 2
    assert lanes(page) == ["line7.camera", "line7.c"]
    frame = boxes(page, "#graph-frame")[0]
    assert is_inside(boxes(page, '[data-operator="70"]')[0], frame)
    page.press("#search", "Enter")
    assert is_inside(boxes(page, '[data-operator="72"]')[0], frame)
    page.fill("#search", "nothing like it")
    assert page.locator("#found").inner_text() == "0 of 100 operators"
    page.fill("#search", "")
    assert page.locator("#graph .unit.other").count() == 0
    assert len(lanes(page)) == LINES - 1 + len(STAGES)


def test_a_name_ends_before_the_figures_and_is_told_in_full(page: Any) -> None:
    page.locator('[data-group="line0"]').click()
    for zoom in (1.0, 0.3):
        page.evaluate("(value) => zoomTo(value)", zoom)
        for index in range(len(STAGES)):
            (box,) = boxes(page, f'[data-operator="{index}"] .box')
            (name,) = boxes(page, f'[data-operator="{index}"] .name')
            assert name["right"] <= box["right"]
            for rate in boxes(page, f'[data-operator="{index}"] text[text-anchor="end"]')[:1]:
                assert name["right"] <= rate["left"] or not rate["width"]
    title = page.locator('[data-operator="1"] title').text_content()
    assert title.startswith(f"line0.{STAGES[1]} ")
    assert page.locator('[data-operator="1"] .name').text_content() != f"line0.{STAGES[1]}"


def test_figures_are_written_without_exponents(page: Any) -> None:
    values = [0.4, 9.96, 99.4, 99.7, 999.7, 99_960, 99_999, 999_700, 1e6, 99.97e6, 3.7e9]
    written = page.evaluate("(values) => values.map(duration)", values)
    assert written[2:4] == ["99 µs", "100 µs"]
    assert not [text for text in written if "e" in text]
    assert page.evaluate("() => [9999, 12345, 99960].map(rate)") == ["9999", "12.3k", "100k"]


# The time line.


def test_the_time_line_shows_what_is_known_however_late_it_is_known(page: Any) -> None:
    page.evaluate(
        "() => { socket.onmessage = null; const at = performance.now(); performance.now = () => at; }"
    )
    for late in (1.2e6, 3e6):
        # As with so many operators that an update with computes is rare: the next figures have none.
        is_moving = page.evaluate(
            """(late) => {
                const now = figures.seen + late;
                received = performance.now() - (now - figures.now) / 1e3;  // it is as late as it says
                show({ ...figures, now, state: "running", line: [], log: [] });
                return speed === 1;
            }""",
            late,
        )
        assert is_moving
        assert has_ink(page, 0.5), f"{late / 1e6} s after the newest compute"


def test_the_time_line_of_a_run_that_stands_still_ends_with_the_last_compute(page: Any) -> None:
    page.evaluate("() => { socket.onmessage = null; }")
    page.evaluate("() => show({ ...figures, now: figures.seen + 60e6, line: [], log: [] })")
    assert has_ink(page, 0.5)
    assert page.evaluate("() => head === figures.seen")


# Goals and paths.


def test_a_miss_is_counted_and_told_in_full_when_asked_for(page: Any) -> None:
    missed, met = page.locator("#goals details").all()
    wait_until(lambda: "missed" in missed.inner_text(), "a miss", page)
    assert missed.locator("summary").inner_text().startswith("Goal line0.camera → line0.sink missed p99 ")
    assert missed.locator(".miss").is_visible() is False
    wait_until(lambda: " met " in met.inner_text(), "a goal that is met", page)
    missed.locator("summary").click()
    wait_until(lambda: missed.locator(".miss").is_visible(), "the miss", page)
    assert "The last miss: " in missed.inner_text()


def test_few_paths_are_shown_until_all_are_asked_for(page: Any) -> None:
    rows = page.locator("#paths tr")
    wait_until(lambda: page.evaluate("() => figures.paths.length") == LINES, "paths", page)
    wait_until(lambda: rows.count() == 8, "few paths", page)
    assert rows.first.inner_text().startswith("line0.camera → 8 more → line0.sink")
    assert rows.first.locator("td").first.get_attribute("title").count(" → ") == len(STAGES) - 1
    page.click("#more-paths")
    assert rows.count() == LINES
