"""The pages of docs/ on a GPU: all with a block that needs one; tests/docs has the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.snippets import PAGES, has, needs_of, run_page

PAGES_WITH_GPU = [page for page in PAGES if "gpu" in needs_of(page)]
LIBRARIES = [(page, need) for page in PAGES_WITH_GPU for need in sorted(needs_of(page))]


pytestmark = pytest.mark.usefixtures("real")


@pytest.mark.parametrize("page", PAGES_WITH_GPU, ids=[page.name for page in PAGES_WITH_GPU])
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, gpu=True)


@pytest.mark.parametrize(("page", "need"), LIBRARIES, ids=[f"{page.name}-{need}" for page, need in LIBRARIES])
def test_what_a_page_needs_is_here(page: Path, need: str) -> None:
    if not has(need, gpu=True):
        pytest.skip(f"{page.name}: {needs_of(page)[need]} blocks need {need}")
