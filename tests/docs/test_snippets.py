"""Every page in docs/, and the README, does what it says: its python blocks run, in order, as one program.

Blocks that need a library run where it is installed; those that need a GPU, in tests/gpu/test_docs.py.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs import snippets
from tests.docs.snippets import DOCS, FENCE, PAGES, ROOT, Block, blocks, has, needs_of, run_page

NAMES = [str(page.relative_to(DOCS)) for page in PAGES]
LIBRARIES = [(page, need) for page in PAGES for need in sorted(needs_of(page))]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=[*NAMES, "README"])
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, gpu=False)


@pytest.mark.parametrize("page", list(filter(needs_of, PAGES)), ids=lambda page: page.name)
def test_the_blocks_of_a_page_that_need_no_library_run_without_the_others(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snippets, "has", lambda need, gpu: False)
    run_page(page, tmp_path, gpu=False)


@pytest.mark.parametrize(("page", "need"), LIBRARIES, ids=[f"{page.name}-{need}" for page, need in LIBRARIES])
def test_what_a_page_needs_is_here(page: Path, need: str) -> None:
    """Show, among what was skipped, which blocks were."""
    if not has(need, gpu=False):
        pytest.skip(f"{page.name}: {needs_of(page)[need]} blocks need {need}")


def test_links_lead_somewhere() -> None:
    for page in (*PAGES, ROOT / "README.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
            if "://" in target:
                continue
            name, _, section = target.partition("#")
            assert (page.parent / name).exists(), (page.name, target)
            if section:
                assert section in anchors_of(page.parent / name), (page.name, target)


@cache
def anchors_of(page: Path) -> list[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


def test_a_reader_can_find_every_page() -> None:
    """A page of the reference is in its table of contents: building the site fails for one that is in none."""
    index = (DOCS / "index.md").read_text()
    found = {page.name for page in PAGES if page.parent == DOCS and f"]({page.name})" in index}
    assert {page.name for page in PAGES if page.parent == DOCS} - found == {"index.md"}


def test_a_page_is_read_as_meant() -> None:
    page = (
        "x\n```python\na = 1\n```\n\n```output\n1\n```\n"
        "```python skip\nb\n```\n```output\n2\n```\n```text\nc\n```\n"
        "```python needs=cupy,gpu\nd\n```\n"
    )
    assert blocks(page) == [
        Block(2, "a = 1\n", "1\n"),
        Block(18, "d\n", needs=frozenset({"cupy", "gpu"})),
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("```console run\n$ echo a\nb\n```\n", "page.md, the block at line 1 printed something else"),
        ("```python\nprint(1)\nwrong\n```\n", "page.md.*line 3.*NameError"),
        (
            "```python\nprint(1)\n```\n```output\n2\n```\n",
            "page.md, the block at line 1 printed something else",
        ),
        ("```python needs=os,json\nraise ValueError('broken')\n```\n", "line 2.*broken"),
    ],
)
def test_a_page_that_is_wrong_fails(tmp_path: Path, text: str, what: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError, match=f"(?s){what}"):
        run_page(page, tmp_path, gpu=False)
