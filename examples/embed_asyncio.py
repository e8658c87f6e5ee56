"""A pipeline inside an asyncio program: tasks put frames in and take results out.

The operator `look_up` is an `async def`: it asks a service for each frame. Up to four calls are in progress at
once, and their results stay in the order of the frames.
"""

from __future__ import annotations

import asyncio

import numpy as np

from headrace import Application, FeedOp, ResultsOp, op
from headrace.application import Feed, Results


@op
def brightness(frame):
    return float(frame.mean())


@op(concurrency=4)
async def look_up(value):
    """Stand for a request to a service."""
    await asyncio.sleep(0)
    return "bright" if value > 0.5 else "dark"


class Labels(Application):
    def compose(self):
        frames, mean, labels = FeedOp(self, name="frames"), brightness(self), look_up(self)
        self.add_flow(frames, mean)
        self.add_flow(mean, labels)
        self.add_flow(labels, ResultsOp(self, name="labels"))


async def send(feed: Feed, count: int) -> None:
    """Put frames in; `put_async` waits while the pipeline has enough to do."""
    with feed:  # at its end the source ends, and so does the run
        for number in range(count):
            await feed.put_async(np.full((8, 8), number / (count - 1)), metadata={"number": number})


async def show(results: Results) -> None:
    async for label in results:
        print(results.metadata["number"], label)


async def main(count: int = 6) -> None:
    app = Labels()
    async with app.running(), asyncio.TaskGroup() as tasks:
        tasks.create_task(send(app.feed("frames"), count))
        tasks.create_task(show(app.results("labels")))


if __name__ == "__main__":
    asyncio.run(main())
