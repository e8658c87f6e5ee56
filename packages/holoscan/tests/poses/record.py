"""Write the SDK's answers to ``answers.json``; run this file with a Python that has holoscan."""

from __future__ import annotations

import json
from pathlib import Path

import programs

from holoscan import pose_tree

if __name__ == "__main__":
    text = json.dumps(programs.answers(pose_tree), default=float)
    Path(__file__).with_name("answers.json").write_text(text + "\n")
