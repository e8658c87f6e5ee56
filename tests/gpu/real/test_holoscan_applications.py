"""Applications that were written for the Holoscan SDK, on a GPU; packages/holoscan/tests has them simulated."""

from __future__ import annotations

import pytest

pytest.importorskip("headrace_holoscan")
pytest.importorskip("cupy")  # the programs use it; a stand-in would be no test on a GPU

from packages.holoscan.tests.applications.test_applications import *  # noqa: F403

pytestmark = pytest.mark.usefixtures("real")
