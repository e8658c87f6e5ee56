"""A recording with pictures, texts and planes, for tests of the page that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.observe import PortRecorder, watch
from tests.harness import App, Step, greedy, run, source


def record(path: Path) -> Path:
    """Record ten frames of one colour each, hostile text, and planes of floats beside a picture."""

    def compose(app: App) -> None:
        frames: list[Any] = [np.full((24, 32, 3), (20 * n, 100, 7), np.uint8) for n in range(10)]
        planes = np.stack([np.full((8, 8), level, np.float32) for level in (0.0, 0.5, 1.0)])
        texts = ["</script><b>0</b>", {"a": planes, "b": frames[0], "c": [1, 2]}]
        take = {"inputs": ["in"], "body": lambda self, op_input, _: op_input.receive("in")}
        app.add_flow(source(app, frames, name="camera"), Step(app, name="one", **take))
        app.add_flow(source(app, texts, name="texts"), Step(app, name="two", **take))
        watch(app, PortRecorder(path, ["camera", "texts"]))

    run(compose, greedy)
    return path
