"""A real browser: Debian's Chromium, driven by Playwright.

Its build without windows shows pages as the other does, and computes half as much: the tabs and menus of the other
are pages, too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
TIMEOUT = 600.0  # seconds: no test waits for as long, on any machine


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser, or skip the test where there is none."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser: apt-get install {BROWSERS[0]}")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright to drive the browser")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=1000 * TIMEOUT
        )
        try:
            yield browser
        finally:
            browser.close()


def new_page(browser: Any, **context: Any) -> Any:
    """Return a page that waits for as long as it takes; its errors are listed in `errors`."""
    page = browser.new_context(**context).new_page()
    page.set_default_timeout(1000 * TIMEOUT)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: page.errors.append(f"a dialog: {dialog.message}"))
    return page


def wait_until(is_so: Callable[[], Any], what: str, page: Any = None) -> Any:
    """Wait until a function returns something true, and return that."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        found = is_so()
        if found:
            return found
        if page is None:
            time.sleep(0.02)
        else:
            page.wait_for_timeout(20)
    raise AssertionError(f"waited in vain: {what}")
