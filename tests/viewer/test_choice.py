"""What shows the pictures: the environment, then the program, then whether there is a display."""

from __future__ import annotations

import pytest

from headrace.viewer.outlets import chosen_outlets, has_display

DISPLAY = {"DISPLAY": ":0"}


@pytest.mark.parametrize(
    ("outlets", "environment", "headless", "names"),
    [
        ("", {}, False, []),
        ("", DISPLAY, False, ["page"]),
        ("", {"WAYLAND_DISPLAY": "wayland-0"}, False, ["page"]),
        ("", {"JPY_PARENT_PID": "1"}, False, ["page"]),
        ("", DISPLAY, True, []),
        ("page", {}, False, ["page"]),
        ("page", {}, True, ["page"]),
        ("none", DISPLAY, False, []),
        ("page", {"HEADRACE_VIEW": "rerun"}, False, ["rerun"]),
        ("page", {"HEADRACE_VIEW": "none"}, False, []),
        ("page", {"HEADRACE_VIEW": " "}, False, ["page"]),
        ("", {"HEADRACE_VIEW": "1"}, False, ["page"]),
        ("", {"HEADRACE_VIEW": "0", **DISPLAY}, False, []),
        ("", {"HEADRACE_VIEW": "auto"}, False, []),
        ("", {"HEADRACE_VIEW": "auto,Out.PNG", **DISPLAY}, False, ["page", "Out.PNG"]),
        ("", {"HEADRACE_VIEW": "page,out.mp4, out.rrd,page"}, False, ["page", "out.mp4", "out.rrd"]),
    ],
)
def test_an_outlet_is_chosen(
    outlets: str, environment: dict[str, str], headless: bool, names: list[str]
) -> None:
    assert chosen_outlets(outlets, environment, headless)[0] == names


def test_an_outlet_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"HEADRACE_VIEW='window': 'window' is no outlet.*page, auto, none, rerun"
    ):
        chosen_outlets("", {"HEADRACE_VIEW": "window"}, False)
    with pytest.raises(ValueError, match=r"operator 'viewer': outlets='window': 'window' is no outlet"):
        chosen_outlets("window", {}, False, "operator 'viewer'")


def test_a_mac_has_a_display() -> None:
    assert has_display({}, "darwin")
    assert not has_display({}, "linux")
