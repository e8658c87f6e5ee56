"""How headrace is installed is said in one place, and is true."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest

from tests.docs.snippets import DOCS, ROOT

PAGE = DOCS / "install.md"


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"])


def test_the_table_has_every_extra() -> None:
    table = PAGE.read_text().partition("| extra |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == extras()


def test_errors_name_extras_that_exist() -> None:
    named = set()
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        text = file.read_text()
        for call in re.findall(r"\binstalling\(([^)]*)\)", text):
            named |= set(re.findall(r"[\"']([\w-]+)[\"']", call))
        named |= set(re.findall(r"import_or_explain\([^,]+, \"(\w+)\"", text))
    assert len(named) > 5
    assert named <= extras()


def test_no_text_has_people_install_from_a_package_index_what_is_not_there() -> None:
    code = [file for folder in ("src", "examples") for file in (ROOT / folder).rglob("*.py")]
    texts = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *code]
    for text in texts:
        if text.name != "installation.py":
            assert not re.search(r"install [^\n]{0,12}headrace\b(?!'?s)", text.read_text()), text


def test_pages_but_the_first_one_link_to_the_page_instead_of_repeating_it() -> None:
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        if page not in (PAGE, DOCS / "start.md"):
            assert "pip install" not in page.read_text(), page


def test_the_old_name_is_gone_but_for_one_line() -> None:
    old = "pen" + "stock"
    done = subprocess.run(
        ["git", "grep", "-i", "-a", "-n", old], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode > 1:
        pytest.skip("not a checkout")
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["CHANGELOG.md"]
