"""The page of a recording in a real browser: scrubbing, frame by frame, pictures and their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.observe import Recording
from tests._web.browser import chromium, new_page, wait_until
from tests.observe.dashboard.recorded import record

pytest.importorskip("aiohttp", reason="needs aiohttp to serve the page")
pytest.importorskip("mcap", reason="needs mcap for recordings")
from headrace.observe.dashboard.recording_page import RecordingPage


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    with Recording(record(tmp_path_factory.mktemp("recording") / "a.mcap")) as recording:
        yield recording


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(recording: Recording, browser: Any) -> Iterator[Any]:
    server = RecordingPage(recording)
    page = new_page(browser)
    page.goto(server.url)
    yield page
    errors = list(page.errors)
    page.close()
    server.close()
    assert not errors


def shown(page: Any, label: str) -> None:
    """Wait until a message with this label is shown."""

    def is_shown() -> bool:
        has_come = page.evaluate("Number(document.body.dataset.shown) === chosen[wanted]")
        return bool(has_come) and label in page.locator("#label").inner_text()

    wait_until(is_shown, label, page)


def colour(page: Any) -> list[int]:
    return list(
        page.evaluate("[...document.querySelector('canvas').getContext('2d').getImageData(3, 2, 1, 1).data]")
    )


def test_frames_are_browsed_one_by_one_and_by_scrubbing(page: Any) -> None:
    page.select_option(
        "#port", label=next(o for o in page.locator("option").all_inner_texts() if "camera" in o)
    )
    shown(page, "1 of 10")
    assert colour(page) == [0, 100, 7, 255]
    page.keyboard.press("ArrowRight")
    shown(page, "2 of 10")
    assert colour(page) == [20, 100, 7, 255]
    page.click("#next")
    page.click("#next")
    page.click("#previous")
    shown(page, "3 of 10")
    page.locator("#position").fill("8")
    shown(page, "9 of 10")
    assert colour(page) == [160, 100, 7, 255]
    page.keyboard.press("End")
    shown(page, "10 of 10")
    page.keyboard.press("ArrowRight")  # there is none behind it
    shown(page, "10 of 10")
    page.keyboard.press("Home")
    shown(page, "1 of 10")
    page.click("#play")
    shown(page, "10 of 10")
    wait_until(lambda: page.locator("#play").inner_text() == "Play", "the end", page)
    page.hover("canvas")
    assert "column 16: 180, 100, 7" in page.locator("figcaption").inner_text()


def test_what_is_no_picture_is_text_and_several_pictures_are_shown(page: Any) -> None:
    page.select_option(
        "#port", label=next(o for o in page.locator("option").all_inner_texts() if "texts" in o)
    )
    shown(page, "1 of 2")
    assert "'</script><b>0</b>'" in page.locator("#text").inner_text()
    page.keyboard.press("ArrowRight")
    shown(page, "2 of 2")
    assert page.locator("figcaption").all_inner_texts() == ["a: float32 8×8×3", "b: uint8 24×32×3"]
    assert colour(page) == [0, 128, 255, 255]
    assert "'c': [1, 2]" in page.locator("#text").inner_text()
