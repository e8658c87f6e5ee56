"""Which outlets a viewer has: what the environment says, or else the program.

``HEADRACE_VIEW``, or else the parameter `outlets`, names one or several, with commas between them. The command line
of a program is its own, and is not looked at: ``headrace run --view`` sets ``HEADRACE_VIEW``.

=================  =========================================================================
``auto``           the page where there is a display or a notebook, otherwise nothing; the default
``page`` or ``1``  the page in the browser
``none`` or ``0``  nothing
``file.png``       the newest picture
``file.mp4``       a video of the pictures that were drawn
``rerun``          Rerun's window
``rerun-web``      Rerun in a browser
``file.rrd``       a recording for Rerun
=================  =========================================================================

``HEADRACE_VIEW_HOST``, ``HEADRACE_VIEW_PORT`` and ``HEADRACE_VIEW_TOKEN`` set where the page is served and the
token of its address.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_PAGE = ("page", "1", "on", "yes", "true")
_NOTHING = ("none", "0", "off", "no", "false")
_FILES = (".png", ".mp4", ".rrd")


def has_display(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> bool:
    """Return whether somebody is likely to sit in front of this machine, or of a notebook that runs on it."""
    environment = os.environ if environment is None else environment
    if environment.get("JPY_PARENT_PID"):  # set by the kernel of a notebook
        return True
    if platform in ("darwin", "win32"):
        return True
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def chosen_outlets(
    outlets: str, environment: Mapping[str, str], is_headless: bool, where: str = "a viewer"
) -> tuple[list[str], bool]:
    """Return the outlets (``"page"``, ``"rerun"``, ``"rerun-web"`` or a file), and whether they were named.

    Parameters
    ----------
    outlets
        The outlets that the program names.
    environment
        The environment.
    is_headless
        Whether the program wants no window; what is named is shown all the same.
    where
        The viewer, for errors.
    """
    text, source = environment.get("HEADRACE_VIEW", ""), "HEADRACE_VIEW"
    if not text.strip():
        text, source = outlets, f"{where}: outlets"
    names: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        low = part.lower()
        if low in _PAGE:
            names.append("page")
        elif low in ("rerun", "rerun-web") or low.endswith(_FILES):
            names.append(part if low.endswith(_FILES) else low)
        elif low == "auto":
            if has_display(environment) and not is_headless:
                names.append("page")
        elif low not in _NOTHING:
            raise ValueError(
                f"{source}={text!r}: {part!r} is no outlet of a viewer; it must be page, auto, none, rerun, "
                "rerun-web, or a file that ends in .png, .mp4 or .rrd"
            )
    if not text.strip():
        return (["page"] if has_display(environment) and not is_headless else []), False
    return list(dict.fromkeys(names)), True
