"""A first pipeline: three functions, two flows.

Numbers come from a source, are smoothed on their way, and are shown.
"""

import math

from penstock import Application, op


@op
def sensor(*, samples: int):
    """A source: what it yields goes out, one value per step, and when it ends the source ends."""
    for n in range(samples):
        yield math.sin(n / 3)


@op
def smooth(value, *, window: int = 4, history=None):
    """Its argument is its input, its keywords are its parameters, what it returns goes out."""
    history.append(value)
    del history[:-window]
    return sum(history) / len(history)


@op
def show(value):
    """A sink: it returns nothing."""
    print(f"{value:+.3f} " + "#" * round(20 * (value + 1)))


class FirstPipeline(Application):
    def compose(self):
        source = sensor(self, samples=20)
        filtered = smooth(self, window=3, history=[])
        self.add_flow(source, filtered)
        self.add_flow(filtered, show(self))


if __name__ == "__main__":
    FirstPipeline().run()
