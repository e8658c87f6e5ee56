"""What shows the pictures: the command line, then the environment, then whether there is a display."""

from __future__ import annotations

import pytest

from headrace.viewer.choice import chosen_outlets, has_display

DISPLAY = {"DISPLAY": ":0"}


@pytest.mark.parametrize(
    ("argv", "environment", "headless", "names"),
    [
        ([], {}, False, []),
        ([], DISPLAY, False, ["page"]),
        ([], {"WAYLAND_DISPLAY": "wayland-0"}, False, ["page"]),
        ([], DISPLAY, True, []),
        (["--view"], {}, False, ["page"]),
        (["--view"], {}, True, ["page"]),
        (["--view=none"], DISPLAY, False, []),
        (["--view=rerun"], {"HEADRACE_VIEW": "page"}, False, ["rerun"]),
        ([], {"HEADRACE_VIEW": "1"}, False, ["page"]),
        ([], {"HEADRACE_VIEW": "0", **DISPLAY}, False, []),
        ([], {"HEADRACE_VIEW": "auto"}, False, []),
        ([], {"HEADRACE_VIEW": "auto,Out.PNG", **DISPLAY}, False, ["page", "Out.PNG"]),
        ([], {"HEADRACE_VIEW": "page,out.mp4, out.rrd,page"}, False, ["page", "out.mp4", "out.rrd"]),
    ],
)
def test_an_outlet_is_chosen(
    argv: list[str], environment: dict[str, str], headless: bool, names: list[str]
) -> None:
    assert chosen_outlets(["program", *argv], environment, headless)[0] == names


def test_an_outlet_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"HEADRACE_VIEW='window': 'window' is no outlet.*page, auto, none, rerun"
    ):
        chosen_outlets(["program"], {"HEADRACE_VIEW": "window"}, False)


def test_a_mac_has_a_display() -> None:
    assert has_display({}, "darwin")
    assert not has_display({}, "linux")
