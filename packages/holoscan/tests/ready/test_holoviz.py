"""HolovizOp of the SDK's layer: parameters that have no effect on a page, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.core import IOSpec, ParameterError
from headrace.testing import run_operator
from headrace_holoscan.holoviz import ColorSpace, HolovizOp

IMAGE = np.zeros((10, 20, 3), np.uint8)


def show(**parameters: Any) -> Any:
    return run_operator(
        HolovizOp, inputs={"receivers": [[{"": IMAGE}]]}, headless=True, outlets="none", **parameters
    ).operator


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"use_exclusive_display": True}, "use_exclusive_display.*use fullscreen=True"),
        ({"display_color_space": "hdr10_st2084"}, "HDR displays.*use auto, srgb_nonlinear, pass_through"),
        ({"display_color_space": "rgb"}, "'display_color_space' .*not a valid ColorSpace"),
        ({"receivers": [3]}, "receivers must be names or inputs"),
    ],
)
def test_what_a_page_cannot_do_is_refused(parameters: dict[str, Any], what: str) -> None:
    with pytest.raises(ParameterError, match=what):
        show(**parameters)


def test_what_means_nothing_to_a_page_is_accepted() -> None:
    viewer = show(display_name="DP-1", vsync=True, receivers=["a", IOSpec("in", IOSpec.IOType.INPUT)])
    assert viewer.display_color_space is ColorSpace.AUTO
    show(display_color_space="srgb_nonlinear")
