"""The pairs of features that the generator never makes do what is said of them, or are refused."""

from __future__ import annotations

import pytest

from headrace.core import GraphError, ParameterError
from tests.random_programs.combinations import general, tried_errors
from tests.random_programs.pairs import REFUSED, WORKS


@pytest.mark.parametrize("pair", WORKS, ids=" and ".join)
def test_a_pair_works(pair: tuple[str, str]) -> None:
    program, expected = WORKS[pair]
    assert program() == expected


@pytest.mark.parametrize("pair", REFUSED, ids=" and ".join)
def test_a_pair_is_refused_with_the_error_of_the_page(pair: tuple[str, str]) -> None:
    with pytest.raises((GraphError, ParameterError, TypeError)) as error:
        REFUSED[pair]()
    assert general(str(error.value)) == tried_errors()[frozenset(pair)]
