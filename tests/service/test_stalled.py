"""A store that stands still: rank answers within its deadline, whoever asks and however many."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.engine import Engine
from rankloop.service.operations import rankers
from rankloop.service.settings import Settings
from rankloop.service.wire.calls import RankAnswer
from rankloop.service.wire.rankers import Spec
from tests.service.inside import rank, running
from tests.service.running import PATIENCE, SPEC, wait_for

TIMEOUT = 1.0


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


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    settings = Settings(store=str(tmp_path / "store.db"), store_timeout_ms=TIMEOUT * 1e3, learn=False)
    with running(settings) as engine:
        rankers.put(engine, "shop", Spec(**SPEC))
        wait_for(lambda: engine.rankers["shop"].warm, "the kernels")
        yield engine


def asked(engine: Engine, count: int) -> tuple[list[RankAnswer], float]:
    """Answers to so many requests at once, and how long all of them took."""

    async def story() -> list[RankAnswer]:
        return list(await asyncio.gather(*(rank(engine, seed) for seed in range(count))))

    start = time.monotonic()
    return asyncio.run(story()), time.monotonic() - start


def reasons(answers: list[RankAnswer]) -> set[str | None]:
    return {answer.reason for answer in answers}


def test_without_numbers_all_wait_for_the_same_ones(engine: Engine) -> None:
    """S1: each waited in turn, the k-th for k time-outs."""
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


def test_once_it_is_known_to_stand_still_nobody_waits_for_it(engine: Engine) -> None:
    asked(engine, 1)
    with standing_still(engine):
        assert reasons(asked(engine, 1)[0]) == {"store"}
        answers, seconds = asked(engine, 50)
        assert reasons(answers) == {"store"}
        assert seconds < TIMEOUT
    wait_for(lambda: reasons(asked(engine, 1)[0]) == {None}, "it to rank again")


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


def test_lists_are_written_where_they_are_ranked_unless_someone_else_writes(engine: Engine) -> None:
    """SQLite, and nobody waits for the disk: the thread is only for what is not plain sailing."""
    asked(engine, 1)
    queued: list[str] = []
    put = engine.writer._put

    def noted(write: Any) -> Any:
        queued.append(write.kind)
        return put(write)

    engine.writer._put = noted  # type: ignore[method-assign]
    answers, _ = asked(engine, 8)
    assert reasons(answers) == {None}
    assert queued == []
    other = engine.database.connect()
    context = other.transaction()
    context.__enter__()  # another process writes, for a moment
    threading.Timer(0.2, lambda: context.__exit__(None, None, None)).start()
    again, _ = asked(engine, 4)
    assert reasons(again) == {None}
    assert queued == ["impression"] * 4
    other.close()
    assert len({answer.impression_id for answer in answers}) == 8
