"""A pipeline inside a web server: each request puts an image in, and gets its result.

Requests run side by side, and share one pipeline. The metadata says which request a frame belongs to. If the
pipeline is busy, `put_async` makes requests wait; if it fails, they fail.

    python examples/embed_web_server.py
    curl --data-binary @picture.raw http://127.0.0.1:8080/mean
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import numpy as np
from aiohttp import web

from headrace import Application, op
from headrace.operators import FeedOp, ResultsOp


@op
def mean(frame):
    return float(frame.mean())


class Means(Application):
    def compose(self):
        frames, means = FeedOp(self, name="frames"), mean(self)
        self.add_flow(frames, means)
        self.add_flow(means, ResultsOp(self, name="means"))


class Service:
    """The pipeline, and the requests that wait for it."""

    def __init__(self) -> None:
        self.pipeline = Means()
        self.waiting: dict[int, asyncio.Future[float]] = {}
        self.numbers = count()

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """Run the pipeline while the server runs."""
        async with self.pipeline.running():
            answering = asyncio.create_task(self.answer())
            yield
            self.pipeline.feed("frames").close()
            await answering

    async def answer(self) -> None:
        results = self.pipeline.results("means")
        try:
            async for value in results:
                request = self.waiting.pop(results.metadata["request"])
                if not request.done():  # the client may have gone
                    request.set_result(value)
        finally:
            for request in self.waiting.values():  # the pipeline failed
                request.cancel()

    async def handle(self, request: web.Request) -> web.Response:
        pixels = np.frombuffer(await request.read(), np.uint8)
        if not pixels.size:
            raise web.HTTPBadRequest(text="the request has no pixels")
        number = next(self.numbers)
        answer = self.waiting[number] = asyncio.get_running_loop().create_future()
        await self.pipeline.feed("frames").put_async(pixels, metadata={"request": number})
        return web.json_response({"mean": await answer})


def server() -> web.Application:
    service, app = Service(), web.Application()
    app.cleanup_ctx.append(service.run)
    app.router.add_post("/mean", service.handle)
    return app


if __name__ == "__main__":
    web.run_app(server(), host="127.0.0.1", port=8080)
