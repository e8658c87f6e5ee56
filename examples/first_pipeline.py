"""A first pipeline: three functions, two flows."""

from __future__ import annotations

import math

from headrace import Application, op


@op
def sensor(*, samples: int):
    """A source: it emits each value that it yields, one per step, and ends when the function ends."""
    for n in range(samples):
        yield math.sin(n / 3)


@op
def amplify(value, *, gain: float = 1.0):
    """An argument is an input, a keyword argument is a parameter, the return value is the output."""
    return gain * value


@op
def show(value):
    """A sink: it returns nothing."""
    print(f"{value:+.3f} " + "#" * round(10 * (value + 2)))


class FirstPipeline(Application):
    def compose(self):
        source = sensor(self, samples=20)
        louder = amplify(self, gain=2.0)
        self.add_flow(source, louder)
        self.add_flow(louder, show(self))


if __name__ == "__main__":
    FirstPipeline().run()
