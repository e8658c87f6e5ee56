"""The dashboard's page in a real browser: numbers move, parameters and controls work, it fits every screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from headrace.observe import Dashboard
from tests._web.browser import chromium, new_page, wait_until
from tests.harness import App
from tests.harness.segments import chain
from tests.observe.dashboard.dashboards import HOSTILE, HOSTILE_LINE, Watched, watched

pytest.importorskip("aiohttp", reason="needs aiohttp to serve the page")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def one() -> Iterator[Watched]:
    """A run that no test ends or leaves paused."""
    one = Watched(interval="100ms")
    yield one
    one.end()


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    """A page whose time line does not move by itself: to draw it sixty times a second takes a core."""
    return new_page(browser, reduced_motion="reduce")


@pytest.fixture
def page(tab: Any, one: Watched) -> Iterator[Any]:
    """The page of the run, loaded anew."""
    open_page(tab, one.dashboard.url)
    yield tab
    assert not tab.errors


def open_page(page: Any, url: str) -> None:
    page.goto("about:blank")  # what the last page still says is not an error of this one
    page.errors.clear()
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto(url)
    wait_until(lambda: page.locator("#state").inner_text() == "running", "figures", page)


def texts_of(page: Any, operator: int) -> list[str]:
    """Return the texts in the box of an operator."""
    return page.locator(f'[data-operator="{operator}"] text').all_text_contents()


def test_the_graph_shows_and_its_numbers_move(page: Any) -> None:
    assert page.locator("#graph [data-operator]").count() == 4
    assert page.locator("#graph .flow").count() == 3
    wait_until(lambda: "/s" in "".join(texts_of(page, 1)), "a rate", page)
    before = texts_of(page, 1)
    wait_until(lambda: texts_of(page, 1) != before, "other figures", page)
    assert "filter" in before[0]
    wait_until(lambda: page.locator("#graph .dropped").all_text_contents()[-1].startswith("−"), "drops", page)
    wait_until(lambda: int(page.locator("#dropped").inner_text()) > 0, "the total", page)
    time = page.locator("#time").inner_text()
    wait_until(lambda: page.locator("#time").inner_text() != time, "time", page)
    rows = page.locator("#paths tr")
    wait_until(lambda: rows.count() and rows.first.inner_text().startswith("source → filter"), "a path", page)


def test_the_time_line_is_drawn_by_operator_and_by_worker(page: Any) -> None:
    inked = """() => {
        const canvas = document.getElementById('line'), half = canvas.width / 2;
        const pixels = canvas.getContext('2d').getImageData(half, 0, half, canvas.height).data;
        // Computes are darker than the marks of the time.
        return pixels.some((value, at) => at % 4 === 0 && value < 190 && pixels[at + 3] > 60);
    }"""
    wait_until(lambda: page.evaluate(inked), "intervals", page)
    assert "filter" in page.get_attribute("#line", "aria-label")
    page.click("#by-worker")
    page.click("#span-6")
    assert page.get_attribute("#by-worker", "aria-pressed") == "true"
    told = page.get_attribute("#line", "aria-label")
    assert re.fullmatch(r"Computes of the last 6 s, a row for each worker: (, |worker \d \d+ % busy)+", told)
    wait_until(lambda: page.evaluate(inked), "intervals", page)


def show(page: Any, change: str) -> None:
    """Show the last figures with a change, and none that come later."""
    page.evaluate(
        """(change) => {
            socket.onmessage = null;
            const next = { ...structuredClone(figures), line: [], log: [] };
            change.split(';').forEach((each) => {
                const [path, value] = each.split('='), keys = path.trim().split('.'), last = keys.pop();
                keys.reduce((object, key) => object[key], next)[last] = JSON.parse(value);
            });
            show(next);
        }""",
        change,
    )


def test_shares_of_operators_queues_and_workers_are_shown(page: Any) -> None:
    show(
        page,
        "operators.1.busy=0.374; operators.1.gpu=[5, 6]; operators.1.gpu_busy=0.12;"
        "queues.1.busy=0.62; queues.2.busy=0; workers=[0.4, 0.05]",
    )
    assert {"host 37 %", "GPU 12 %", "5.0 / 6.0 µs"} <= set(texts_of(page, 1))
    label = page.locator('[data-operator="1"]').get_attribute("aria-label")
    assert "37 % busy" in label
    assert "12 % busy" in label
    assert page.locator("#graph .fill").all_text_contents()[1:] == ["62 %", ""]
    assert "62 % full on average" in page.locator("#graph .queue title").nth(1).text_content()
    assert page.locator("#workers").inner_text() == "40 % · 5 %"
    show(
        page,
        "operators.1.busy=0.5; operators.1.waits=0.4; operators.1.interpreter=0.1; operators.1.count=9;"
        'operators.1.waiting={"message": 0.2, "gpu": 0.1, "worker": 0.05, "memory": 0.04, "held": 0}',
    )
    cells = page.locator("#waiting tr").nth(1).locator("td")
    shares = ["computes 30 %", "interpreter ≤ 5 %", "blocked 15 %", "messages 20 %", "GPU 10 %", "worker 5 %"]
    assert cells.nth(2).locator("span").all_text_contents() == [*shares, "memory ≤ 4 %"]
    assert cells.nth(1).locator("i").count() == 7
    show(page, "workers=[0.4, 0.05, 0.2, 0.3, 0.91]")
    assert page.locator("#workers").inner_text() == "5–91 % of 5"


def test_late_ticks_and_the_latest_are_told(page: Any) -> None:
    show(page, 'operators.0.faults={"late_ticks": 3, "skipped_ticks": 1}; operators.0.latest=19000')
    label = page.locator('[data-operator="0"]').get_attribute("aria-label")
    assert "late ticks: 3, skipped ticks: 1, latest tick by 19.0 ms" in label
    assert "latest tick by 19.0 ms" in page.locator('[data-operator="0"] > title').text_content()


def test_what_is_saturated_is_named_and_marked(page: Any) -> None:
    line, marked = page.locator("#saturated"), page.locator("#graph .unit.saturated")
    show(page, "saturated=[]; operators.1.is_saturated=false; operators.2.is_saturated=false")
    assert line.inner_text() == "Nothing is saturated."
    assert marked.count() == 0
    show(page, f'saturated=["{HOSTILE.replace("=", "≠")} computes 97%"]; operators.2.is_saturated=true')
    assert line.inner_text() == f"Saturated: {HOSTILE.replace('=', '≠')} computes 97%"
    assert [each.get_attribute("data-operator") for each in marked.all()] == ["2"]
    show(page, 'saturated=["a", "b", "c", "d"]')
    assert line.inner_text() == "Saturated: a; b; and 2 more"
    line.locator("summary").press("Enter")
    show(page, 'saturated=["a", "b", "c", "e"]')
    assert line.locator("li").all_inner_texts() == ["c", "e"], "it stays open"
    assert page.evaluate("() => document.activeElement.tagName") == "SUMMARY"


def test_a_slice_has_its_share_and_its_cells_stay(page: Any) -> None:
    live = '{"key": "0:live", "name": "live", "sms": 4, "cells": 4, "index": 0, "busy": %s}'
    show(page, f'gpus=[{{"name": "GPU", "sms": 4, "slices": [{live % 0.25}]}}]; operators.1.slice="0:live"')
    assert page.locator("#gpus li").inner_text().split("\n") == ["live 4 SMs · filter", "25 % busy"]
    page.evaluate("() => { window.cell = document.querySelector('.sms i'); }")
    show(page, "gpus.0.slices.0.busy=0.9")
    assert page.locator("#gpus [data-busy]").inner_text() == "90 % busy"
    assert page.evaluate("() => window.cell.isConnected")


def test_goals_tell_lost_and_outstanding_messages(page: Any) -> None:
    goal = page.locator("#goals .goal").first
    show(
        page,
        "goals.0.is_met=null; goals.0.sent=11; goals.0.arrived=8; goals.0.late=0; goals.0.lost=0; "
        "goals.0.outstanding=3",
    )
    assert "not judged p99 " in goal.inner_text()
    assert "of 11 sent 8 arrived in time, 3 outstanding" in goal.inner_text()
    show(
        page, "goals.0.is_met=false; goals.0.sent=5; goals.0.arrived=0; goals.0.lost=5; goals.0.outstanding=0"
    )
    assert "missed p99 at most 0.0010 µs; of 5 sent 0 arrived in time, 5 lost" in goal.inner_text()


def test_a_parameter_changed_on_the_page_reaches_the_operator(page: Any, one: Watched) -> None:
    page.locator("#parameter-0").fill("4")  # the slider
    wait_until(lambda: one.filter.gain == 4.0 and 4.0 in one.taken, "the gain", page)
    number = page.get_by_label("gain of filter")
    assert number.input_value() == "4"
    number.fill("2.5")
    number.press("Enter")
    wait_until(lambda: one.filter.gain == 2.5, "the gain from the field", page)
    page.get_by_label("mode", exact=False).select_option("hard")
    wait_until(lambda: one.filter.mode == "hard", "the choice", page)
    page.get_by_label("is_on", exact=False).uncheck()
    wait_until(lambda: one.filter.is_on is False, "the box", page)
    one.filter.set_live("gain", 1.5)
    wait_until(lambda: page.locator("#parameter-0").input_value() == "1.5", "a change from code", page)
    assert page.get_by_label("table", exact=False).is_disabled()


def test_a_wrong_value_is_explained_beside_the_field(page: Any, one: Watched) -> None:
    taps = page.get_by_label("taps", exact=False)
    taps.fill("4")
    taps.press("Enter")
    error = page.locator(".field", has=taps).locator("output")
    wait_until(lambda: "must not be 4" in error.inner_text(), "the error", page)
    taps.fill("5")
    taps.press("Enter")
    wait_until(lambda: one.filter.taps == 5 and error.inner_text() == "", "the value", page)
    refused = "Failed to load resource: the server responded with a status of 400 (Bad Request)"
    assert page.errors == [refused]  # as a browser logs it
    page.errors.clear()


def test_a_page_pauses_steps_and_stops_a_run_and_shows_the_next_one(tab: Any) -> None:
    with watched() as one:
        open_page(tab, one.dashboard.url)
        pause_step_and_stop(tab, one)
        one.future = one.app.run_async()
        wait_until(lambda: tab.locator("#state").inner_text() == "running", "the next run", tab)


def pause_step_and_stop(page: Any, one: Watched) -> None:
    page.click("#pause")
    wait_until(lambda: page.locator("#state").inner_text() == "paused", "the pause", page)
    assert one.app.wait_until_paused()
    assert page.locator("#pause").inner_text() == "Resume"

    def computes() -> int:
        return sum(node.computes for node in one.app._headrace.engine.nodes)

    before = computes()
    page.click("#step")
    wait_until(lambda: computes() == before + 1, "a step", page)
    assert one.app.wait_until_paused()
    page.click("#pause")
    wait_until(lambda: page.locator("#state").inner_text() == "running", "the resume", page)
    wait_until(lambda: computes() > before + 5, "computes", page)
    page.click("#stop")
    assert page.locator("#stop").inner_text() == "Really stop?"
    page.click("#title")
    assert page.locator("#stop").inner_text() == "Stop", "whoever does something else does not want to stop"
    page.click("#stop")
    assert not one.future.done()
    page.click("#stop")
    assert one.future.result().ended_by.value == "stopped"
    wait_until(lambda: page.locator("#state").inner_text() == "ended", "the end", page)
    assert page.locator("#pause").is_disabled()


def test_hostile_text_stays_text(page: Any) -> None:
    wait_until(lambda: HOSTILE_LINE in page.locator("#log").inner_text(), "the log", page)
    goals = wait_until(lambda: page.locator("#goals").inner_text(), "goals", page)
    assert f"Goal slow → {HOSTILE} not judged p99 at most 1.00 s; nothing was sent" in goals
    assert page.locator('[data-operator="2"] title').text_content().startswith(HOSTILE)
    assert page.get_by_label("label", exact=False).input_value() == HOSTILE
    found = page.evaluate(
        """() => [document.images.length, document.scripts.length, document.querySelectorAll('#log b').length]"""
    )
    assert found == [0, 1, 0]


def test_the_page_can_be_used_with_the_keyboard_alone(page: Any, one: Watched) -> None:
    reached = []
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.id"))
    assert reached[:3] == ["pause", "step", "stop"]
    assert {"search", "zoom-in", "zoom-out", "fit", "graph-frame"} <= set(reached)
    assert {"by-operator", "by-worker", "span-1", "span-6", "parameter-0"} <= set(reached)
    one.filter.set_live("gain", 1.0)
    wait_until(lambda: page.locator("#parameter-0").input_value() == "1", "the gain", page)
    page.focus("#pause")
    page.keyboard.press("Space")
    wait_until(lambda: page.locator("#state").inner_text() == "paused", "the pause", page)
    page.focus("#parameter-0")
    page.keyboard.press("ArrowRight")
    page.focus("#pause")
    page.keyboard.press("Enter")
    wait_until(lambda: one.filter.gain > 1, "a change by an arrow key", page)


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 800, "light"), (360, 740, "dark")])
def test_the_page_fits_every_screen(page: Any, width: int, height: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    wait_until(lambda: page.locator("#log li").count(), "the log", page)
    show(page, 'saturated=["a computes 97%", "bcdefghi computes 93% of the time", "c"]; workers=[1, 1, 1, 1]')
    sizes = page.evaluate(
        """() => ({
            scroll: document.documentElement.scrollWidth, ground: getComputedStyle(document.body).backgroundColor,
            boxes: [...document.querySelectorAll('section, button, input, canvas, table, h1')]
                .map((e) => e.getBoundingClientRect()).filter((box) => box.width)
                .map((box) => [box.left, box.right]),
        })"""
    )
    assert sizes["scroll"] <= width
    assert all(left >= 0 and right <= width + 1 for left, right in sizes["boxes"])
    assert (sum(map(int, sizes["ground"][4:-1].split(","))) > 380) == (scheme == "light")


def test_operators_of_a_captured_segment_are_marked_and_its_state_is_shown(tab: Any) -> None:
    app = App(lambda app: chain(app, 1_000_000, 10_000_000), clock=None)
    urls: SimpleQueue[str] = SimpleQueue()
    Dashboard(app, announce=urls.put, interval="50ms")
    future = app.run_async()
    future.add_done_callback(lambda done: urls.put(""))  # of a run that could not begin
    try:
        open_page(tab, urls.get())
        row = tab.locator("#segments tr")
        wait_until(lambda: row.locator("td").nth(1).inner_text() == "captured", "the state", tab)
        assert row.locator("td").first.inner_text() == "middle: one, two, three"
        marked = tab.locator("#graph .box.captured")
        wait_until(lambda: marked.count() == 3, "marks", tab)
        replayed = row.locator("td").nth(3)
        count = int(replayed.inner_text())
        wait_until(lambda: int(replayed.inner_text()) > count, "more replays", tab)
        label = tab.locator('[data-operator="2"]').get_attribute("aria-label")
        assert label.startswith("two: ")
        assert label.endswith(", captured in middle")
        assert not tab.errors
    finally:
        app.stop_execution()
        future.result()
