"""A first pipeline: three functions, two flows."""

import math

from penstock import Application, op


@op
def sensor(*, samples: int):
    """A source: what it yields goes out, one value per step, and when it ends the source ends."""
    for n in range(samples):
        yield math.sin(n / 3)


@op
def amplify(value, *, gain: float = 1.0):
    """Its argument is its input, its keyword is its parameter, what it returns goes out."""
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
