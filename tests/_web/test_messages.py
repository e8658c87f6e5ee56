"""Messages: the limits of what a page may say."""

from __future__ import annotations

from typing import Any

import pytest

from headrace._web.messages import MalformedMessage, choice, number, read_message, string, whole


def test_a_string_has_at_most_so_many_characters() -> None:
    assert string({"name": "x" * 40}, "name") == "x" * 40
    assert string({"name": "x" * 200}, "name", 200) == "x" * 200
    with pytest.raises(MalformedMessage, match="name must be a string of at most 40 characters"):
        string({"name": "x" * 41}, "name")
    with pytest.raises(MalformedMessage, match="at most 200"):
        string({"name": "x" * 201}, "name", 200)


@pytest.mark.parametrize("value", [0, -1_000_000, 1_000_000, 1e6, -1e6, 0.5])
def test_a_number_is_returned_as_a_float(value: float) -> None:
    found = number({"x": value}, "x")
    assert (found, type(found)) == (float(value), float)


@pytest.mark.parametrize(
    "value",
    [
        1_000_001,
        -1_000_001,
        1e6 + 0.5,
        -1e6 - 0.5,
        10**400,
        -(10**400),
        float("inf"),
        float("nan"),
        True,
        "1",
        None,
    ],
)
def test_a_number_that_is_too_large_or_none_is_refused(value: Any) -> None:
    with pytest.raises(MalformedMessage, match=r"x must be a number from -1e\+06 to 1e\+06"):
        number({"x": value}, "x")


@pytest.mark.parametrize("value", [0, 11, 10**400, 1.0, True, "1", None])
def test_an_int_beyond_its_limits_is_refused(value: Any) -> None:
    assert [whole({"n": each}, "n", 1, 10) for each in (1, 10)] == [1, 10]
    with pytest.raises(MalformedMessage, match="n must be an int from 1 to 10"):
        whole({"n": value}, "n", 1, 10)


@pytest.mark.parametrize("value", ["c", "", None, ["a"], 1])
def test_a_choice_is_one_of_those_that_there_are(value: Any) -> None:
    assert choice({"do": "a"}, "do", {"a": 1, "b": 2}) == 1
    with pytest.raises(MalformedMessage, match="do must be one of a, b"):
        choice({"do": value}, "do", {"a": 1, "b": 2})


@pytest.mark.parametrize("text", ["", "[]", "3", '"text"', "[" * 2000, '{"n": ' + "9" * 5000 + "}"])
def test_a_message_is_an_object(text: str) -> None:
    assert read_message('{"type": "shown"}') == {"type": "shown"}
    with pytest.raises(MalformedMessage, match="must be a JSON object"):
        read_message(text)
