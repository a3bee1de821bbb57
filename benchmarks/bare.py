"""The least that could answer a rank request: uvicorn reads the body into one array and answers (used by wrk)."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import uvicorn

from rankloop.service.api.content_encoding import whole
from rankloop.service.serving.schema import Schema
from rankloop.wire.calls import RankAnswer, RankedItem
from rankloop.wire.rankers import Spec

SHOWN = 10
LIMIT = 8 * 2**20  # bytes of a body


class Bare:
    """An ASGI application; it knows one ranker, whatever the path says."""

    def __init__(self, features: int) -> None:
        self.schema = Schema(Spec(features=[f"feature_{j}" for j in range(features)]))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Read, answer."""
        if scope["type"] != "http":
            return
        body = await whole(receive, LIMIT)
        ids = self.schema.parse(body).ids if scope["path"].endswith("/rank") else []
        items = [RankedItem(item, place, 0.5) for place, item in enumerate(ids[:SHOWN], 1)]
        answer = msgspec.json.encode(RankAnswer("0" * 26, "bare", "live@0", "full", False, items))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    application: Any = Bare(int(sys.argv[2]))
    quiet: Any = {"lifespan": "off", "proxy_headers": False, "access_log": False, "log_level": "warning"}
    uvicorn.run(application, port=int(sys.argv[1]), **quiet)
