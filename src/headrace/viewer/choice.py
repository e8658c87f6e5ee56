"""Which outlets a viewer has: what the program's command line and the environment say.

``--view=...`` on the command line, or else ``HEADRACE_VIEW``, names one or several, with commas between them:

=================  =========================================================================
``auto``           the page where there is a display, otherwise nothing; the default
``page`` or ``1``  the page in the browser; ``--view`` alone means this
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
from collections.abc import Mapping, Sequence

__all__ = ["chosen_outlets", "has_display"]

_PAGE = ("page", "1", "on", "yes", "true")
_NOTHING = ("none", "0", "off", "no", "false")
_FILES = (".png", ".mp4", ".rrd")


def has_display(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> bool:
    """Return whether somebody is likely to sit in front of this machine."""
    environment = os.environ if environment is None else environment
    if platform in ("darwin", "win32"):
        return True
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def chosen_outlets(
    argv: Sequence[str], environment: Mapping[str, str], is_headless: bool
) -> tuple[list[str], bool]:
    """Return the outlets (``"page"``, ``"rerun"``, ``"rerun-web"`` or a file), and whether they were named.

    Parameters
    ----------
    argv
        The command line; the last ``--view`` counts.
    environment
        The environment.
    is_headless
        Whether the program wants no window; what is named outside of the program is shown all the same.
    """
    text, source = environment.get("HEADRACE_VIEW", ""), "HEADRACE_VIEW"
    for word in argv[1:]:
        if word == "--view":
            text, source = "page", word
        elif word.startswith("--view="):
            text, source = word.removeprefix("--view="), "--view"
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
