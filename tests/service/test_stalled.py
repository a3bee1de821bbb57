"""A store that stands still: rank answers within its deadline, whoever asks and however many."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankloop.service.control import rankers
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.wire.calls import RankAnswer
from rankloop.wire.rankers import Spec
from tests.service.inside import rank, running
from tests.service.running import PATIENCE, SPEC, wait_for

TIMEOUT = 5.0


@contextmanager
def standing_still(engine: Engine) -> Iterator[None]:
    """The writer waits for something that does not come."""
    goes_on, waits = threading.Event(), threading.Event()

    def stand(_: object) -> None:
        waits.set()
        goes_on.wait(PATIENCE)

    write = engine.writer.run(stand)
    assert waits.wait(PATIENCE)
    try:
        yield
    finally:
        goes_on.set()
        write.future.result(PATIENCE)


@pytest.fixture(params=[TIMEOUT])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Its store time-out is short where a test only waits for it, and long where it measures what is not waited for."""
    settings = Settings(store=str(tmp_path / "store.db"), store_timeout_ms=request.param * 1e3, learn=False)
    with running(settings) as engine:
        rankers.put(engine, "shop", Spec(**SPEC))
        wait_for(lambda: engine.rankers["shop"].compiled, "the kernels")
        yield engine


def asked(engine: Engine, count: int) -> tuple[list[RankAnswer], float]:
    """Answers to so many requests at once, and how long all of them took."""

    async def story() -> list[RankAnswer]:
        return list(await asyncio.gather(*(rank(engine, seed) for seed in range(count))))

    start = time.monotonic()
    return asyncio.run(story()), time.monotonic() - start


def reasons(answers: list[RankAnswer]) -> set[str | None]:
    return {answer.reason for answer in answers}


@pytest.mark.slow
def test_without_numbers_all_wait_for_the_same_ones(engine: Engine) -> None:
    """The k-th request does not wait for k time-outs."""
    with standing_still(engine):
        answers, seconds = asked(engine, 12)
        assert reasons(answers) == {"store"}
        assert seconds < 6 * TIMEOUT
    wait_for(lambda: reasons(asked(engine, 1)[0]) == {None}, "it to rank again")


def test_numbers_are_asked_for_before_they_are_needed(engine: Engine) -> None:
    asked(engine, 1)
    live = engine.rankers["shop"]
    while not live.numbers.low:
        live.numbers.take()

    def refilled() -> bool:
        asked(engine, 1)  # which begins to ask for more, and does not wait for them
        return not live.numbers.low

    wait_for(refilled, "more numbers")
    seen = []
    while (number := live.numbers.take()) is not None:
        seen.append(number)
    assert seen == sorted(set(seen))


@pytest.mark.slow
def test_once_it_is_known_to_stand_still_nobody_waits_for_it(engine: Engine) -> None:
    asked(engine, 1)
    with standing_still(engine):
        assert reasons(asked(engine, 1)[0]) == {"store"}
        answers, seconds = asked(engine, 50)
        assert reasons(answers) == {"store"}
        assert seconds < TIMEOUT
    wait_for(lambda: reasons(asked(engine, 1)[0]) == {None}, "it to rank again")


@pytest.mark.parametrize("engine", [0.5], indirect=True)
def test_what_was_given_up_is_not_shown_to_anybody(engine: Engine) -> None:
    """An impression that nobody was told of is taken back: no window would ever close on it."""
    asked(engine, 1)
    with standing_still(engine):
        assert reasons(asked(engine, 3)[0]) == {"store"}

    def counted(expected: int) -> Callable[[], bool]:
        return lambda: (
            engine.database.read(lambda c: c.rows("SELECT COUNT(*) FROM impressions")) == [(expected,)]
            and engine.writer.do(lambda c: c.rows("SELECT 1")) == [(1,)]
        )

    wait_for(counted(1), "them to be taken back")
