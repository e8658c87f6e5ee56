"""The page of combinations says what the code does, and leaves no pair out."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from tests.random_programs.combinations import (
    ELSEWHERE,
    FEATURES,
    PAGE,
    cells,
    counted,
    page,
    tried,
    tried_errors,
)
from tests.random_programs.pairs import REFUSED


def test_no_pair_is_left_out() -> None:
    found = cells()
    assert [pair for pair in combinations(FEATURES, 2) if not found.get(frozenset(pair))] == []
    assert not {"~", "."} & set(found.values())
    assert [test for path, test in ELSEWHERE.values() if f"def {test}(" not in Path(path).read_text()] == []


@pytest.mark.thorough  # it makes 2,000 programs
def test_the_page_counts_the_programs_that_combine_two_features() -> None:
    counts = counted()
    shown = {pair: cell for pair, cell in cells().items() if cell.isdigit()}
    assert shown == {pair: str(count) for pair, count in counts.items() if len(pair) == 2 and count}


def test_what_the_generator_makes_and_headrace_refuses_has_the_error_of_the_page() -> None:
    errors = tried_errors()
    made = [
        pair
        for pair in combinations(FEATURES, 2)
        if frozenset(pair) in errors and frozenset(pair) not in {*ELSEWHERE, *map(frozenset, REFUSED)}
    ]
    assert {pair: tried(*pair) for pair in made} == {pair: errors[frozenset(pair)] for pair in made}


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_page_is_what_its_program_writes() -> None:
    assert PAGE.read_text() == page(), "write it: python -m tests.random_programs.combinations"
