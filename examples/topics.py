"""A camera program publishes its pictures, and another program receives them whenever it runs.

Start the two in any order, in two terminals, and stop and start either of them again:

    $ headrace run examples/topics.py -- camera
    $ headrace run examples/topics.py -- brightness

Look into the running camera program from a third terminal:

    $ headrace topics
    $ headrace topics show plant/video
    $ headrace view plant/video
"""

from __future__ import annotations

import sys

import numpy as np

from headrace import Application, PeriodicCondition, op


@op
def camera(*, context, metadata):
    frame = np.zeros((240, 320, 3), np.uint8)
    number = 0
    while True:
        number += 1
        frame = np.full_like(frame, number % 200)
        context.acq_timestamp = context.timestamp
        metadata["frame"] = number
        yield frame


@op
def brightness(frame, *, metadata):
    print(f"frame {metadata['frame']}: brightness {np.asarray(frame).mean():.0f}", flush=True)


class Camera(Application):
    def compose(self):
        video = camera(self, PeriodicCondition(self, "50Hz"))
        # Nobody has to listen. A subscriber that is slow gets the newest picture.
        self.export_topic("plant/video", video)


class Brightness(Application):
    def compose(self):
        # It waits for the camera program, and waits again when that ends.
        self.import_topic("plant/video", brightness(self))


if __name__ == "__main__":
    programs = {"camera": Camera, "brightness": Brightness}
    if sys.argv[1:] not in [[name] for name in programs]:
        sys.exit(f"usage: topics.py {'|'.join(programs)}")
    programs[sys.argv[1]]().run()
