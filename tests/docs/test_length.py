"""The docs are short enough to be read: what is written by hand, without what is made from code and results."""

from __future__ import annotations

from tests.docs.snippets import DOCS, ROOT

MADE = {"bench.md", "holoscan-names.md"}
PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.glob("*.md")) if page.name not in MADE)]
WORDS = {page.name: len(page.read_text().split()) for page in PAGES}


def test_the_readme_and_the_pages_have_at_most_45_000_words() -> None:
    assert sum(WORDS.values()) <= 45_000


def test_a_page_takes_about_two_screens() -> None:
    of_reference = {"holoscan-differences.md"}  # things are looked up in its tables
    assert {name: words for name, words in WORDS.items() if words > 1_100}.keys() <= of_reference
