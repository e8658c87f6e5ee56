"""A pipeline inside a web server: each request puts an image in, and gets its own answer.

Requests run side by side, and share one pipeline, which computes those that wait together. The answer to a call is
what stems from its image, so nothing in the data says who asked.

    python examples/embed_web_server.py
    curl --data-binary @picture.raw http://127.0.0.1:8080/mean
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from headrace import Application, ConditionType, FeedOp, Input, ResultsOp, op
from headrace.core import FeedClosedError, FeedFullError
from shared.needs import needs

needs("aiohttp")
from aiohttp import web


@op(inputs={"images": Input(size=8).condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)})
def average(images):
    return [float(image.mean()) if image.size else ValueError("the image has no pixels") for image in images]


class Means(Application):
    def compose(self):
        images, found = FeedOp(self, name="images", size=64), average(self)
        self.add_flow(images, found)
        self.add_flow(found, ResultsOp(self, name="means"))


PIPELINE = web.AppKey("pipeline", Means)


class Service:
    """The pipeline, and what its errors are in HTTP."""

    def __init__(self) -> None:
        self.pipeline = Means()

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """Run the pipeline while the server runs."""
        async with self.pipeline.running():
            yield

    async def handle(self, request: web.Request) -> web.Response:
        image = np.frombuffer(await request.read(), np.uint8)
        try:
            mean = await self.pipeline.call("images", image, timeout="1s")
        except ValueError as error:  # of this image; those in the same batch have their answers
            raise web.HTTPBadRequest(text=str(error)) from None
        except FeedFullError:
            raise web.HTTPTooManyRequests(headers={"Retry-After": "1"}) from None
        except TimeoutError:
            raise web.HTTPGatewayTimeout from None
        except FeedClosedError:  # the run has ended
            raise web.HTTPServiceUnavailable from None
        return web.json_response({"mean": mean})


def server() -> web.Application:
    service, app = Service(), web.Application()
    app[PIPELINE] = service.pipeline
    app.cleanup_ctx.append(service.run)
    app.router.add_post("/mean", service.handle)
    return app


if __name__ == "__main__":
    web.run_app(server(), host="127.0.0.1", port=8080)
