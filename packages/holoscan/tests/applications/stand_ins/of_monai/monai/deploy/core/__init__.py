"""The classes of holoscan.core, under this name, with the paths of the application in environment variables."""

from __future__ import annotations

import os

from holoscan.core import *  # noqa: F403
from holoscan.core import Application


class AppContext:
    """Where an application reads and writes."""

    def __init__(self, args):
        self.input_path = args.get("input") or os.environ.get("HOLOSCAN_INPUT_PATH", "input")
        self.output_path = args.get("output") or os.environ.get("HOLOSCAN_OUTPUT_PATH", "output")


# It adds a method to the class that it does not own.
Application.init_app_context = lambda *args: AppContext({})
