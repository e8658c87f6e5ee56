"""Small pictures of large ones, computed in Python, on two processes."""

import numpy as np

from headrace import Application, op


@op
def pictures():
    for brightness in (10, 20, 30):
        yield np.full((40, 60), brightness, np.uint8)


@op
def shrink(picture):
    rows = [[int(picture[y, x]) for x in range(0, 60, 10)] for y in range(0, 40, 10)]
    return np.array(rows, np.uint8)


@op
def show(picture):
    print(picture.shape, picture[0, 0])


class Thumbnails(Application):
    def compose(self):
        small = shrink(self, workers=2, on="processes")
        self.add_flow(pictures(self), small)
        self.add_flow(small, show(self))


if __name__ == "__main__":
    Thumbnails().run()
