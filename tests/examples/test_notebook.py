"""The notebook of the examples runs, and its cells show what they are said to show."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import PATIENCE
from tests.harness.processes import EXAMPLES, environment_of_programs

pytest.importorskip("nbclient")


@pytest.fixture(scope="module")
def shown() -> dict[str, dict[str, Any]]:
    """Return the data that each cell shows, by its code."""
    import nbclient
    import nbformat

    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=PATIENCE, startup_timeout=PATIENCE)
    client.execute(env=environment_of_programs())
    return {
        cell.source: output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    }


def test_an_application_is_drawn(shown: dict[str, dict[str, Any]]) -> None:
    html = shown["app"]["text/html"]
    assert html.startswith('<img src="data:image/svg+xml;base64,')
    assert "mirror.frame" in html, "a text for those who do not see the picture"


def test_an_outcome_is_a_table(shown: dict[str, dict[str, Any]]) -> None:
    html = shown["app.run()"]["text/html"]
    assert "&#x27;Mirror&#x27; finished after" in html
    assert '<td style="text-align:left">mirror</td><td style="text-align:right">30</td>' in html


def test_a_tensor_is_a_picture(shown: dict[str, dict[str, Any]]) -> None:
    html = shown["as_tensor(app.kept[0])"]["text/html"]
    assert "Tensor(shape=(90, 160, 3), dtype=uint8" in html
    assert "data:image/png;base64," in html


def test_statistics_are_tables(shown: dict[str, dict[str, Any]]) -> None:
    html = shown["tracker = app.track()\napp.run()\ntracker.statistics"]["text/html"]
    assert html.count("<table>") == 5  # operators, queues, paths, workers, and what each waited for
    assert "camera → mirror → keep" in html


def test_the_viewer_opens_in_a_cell(shown: dict[str, dict[str, Any]]) -> None:
    html = shown["watched.viewer"]["text/html"]
    assert html.startswith('<iframe src="http://127.0.0.1:')
    assert "stopped after" in shown["watched.stop_execution()\nfuture.result()"]["text/html"]
