"""An engine in this process, asked without HTTP."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.storage import NewEvent
from rankloop.wire.calls import FeedbackEvent, RankAnswer
from tests.service.running import PATIENCE, rank_request


@contextmanager
def running(settings: Settings, clock: Callable[[], float] | None = None) -> Iterator[Engine]:
    """An engine in this process."""
    interval = sys.getswitchinterval()
    engine = Engine(settings, clock=clock)
    engine.start()
    try:
        assert engine.kernels_ready.wait(PATIENCE)
        yield engine
    finally:
        engine.stop()
        sys.setswitchinterval(interval)


async def rank(engine: Engine, seed: int = 0) -> RankAnswer:
    request = msgspec.json.encode(rank_request(random.Random(seed)))
    return msgspec.json.decode(await engine.rank("shop", request), type=RankAnswer)


async def click(engine: Engine, name: str, answer: RankAnswer, final: bool = True) -> list[str]:
    event = FeedbackEvent(name, str(answer.impression_id), [answer.items[0].id], final=final)
    found = await engine.feedback([NewEvent(event, msgspec.json.encode(event))])
    return [receipt.status for receipt in found.receipts]
