"""Threads that can be given up on: time-outs, results, errors, and who replaces whom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from rankloop.service.worker.hang_supervisor import JobQueue, SupervisedPool
from tests.service.running import PATIENCE, wait_for


@pytest.fixture
def pool() -> Iterator[SupervisedPool]:
    made = SupervisedPool(2, name="pool-under-test")
    yield made
    made.close()
    soon(lambda: threads() == 0)  # they end in their own time; the next test counts anew


def threads() -> int:
    return sum(thread.name == "pool-under-test" for thread in threading.enumerate())


def soon(reached: Callable[[], bool]) -> None:
    wait_for(reached, "threads", every=0.005)


@pytest.mark.parametrize("error", [ValueError, KeyError, TimeoutError, MemoryError])
def test_errors_are_reraised(pool: SupervisedPool, error: type[Exception]) -> None:
    def fails() -> None:
        raise error("no")

    with pytest.raises(error):
        asyncio.run(pool.run(fails, PATIENCE))
    assert asyncio.run(pool.run(lambda: 1, PATIENCE)) == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit, asyncio.CancelledError])
def test_system_exit_becomes_a_plain_error(pool: SupervisedPool, error: type[BaseException]) -> None:
    def fails() -> None:
        raise error("no")

    with pytest.raises(RuntimeError, match=error.__name__):
        asyncio.run(pool.run(fails, PATIENCE))
    assert asyncio.run(pool.run(lambda: 1, PATIENCE)) == 1
    soon(lambda: threads() == 2)


def test_a_hanging_thread_is_replaced(pool: SupervisedPool) -> None:
    free = threading.Event()

    def hang() -> None:
        free.wait(PATIENCE)

    async def story() -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await pool.run(hang, 0.2)
            assert await pool.run(lambda: "fine", PATIENCE) == "fine"
        assert threads() == 5

    asyncio.run(story())
    free.set()
    soon(lambda: threads() == 2)
    assert asyncio.run(pool.run(lambda: "fine", PATIENCE)) == "fine"


def test_jobs_that_time_out_in_the_queue_never_run(pool: SupervisedPool) -> None:
    free, ran = threading.Event(), []
    begun = threading.Semaphore(0)

    def keep_busy() -> bool:
        begun.release()
        return free.wait(PATIENCE)

    async def story() -> None:
        busy = [asyncio.ensure_future(pool.run(keep_busy, PATIENCE)) for _ in range(2)]
        for _ in busy:
            await asyncio.to_thread(begun.acquire)
        with pytest.raises(TimeoutError):
            await pool.run(lambda: ran.append(1), 0.05)
        assert threads() == 2  # it was waiting, not hanging
        free.set()
        assert await asyncio.gather(*busy) == [True, True]
        assert await pool.run(lambda: 7, PATIENCE) == 7

    asyncio.run(story())
    assert ran == []
    assert threads() == 2


def test_canceled_callers_do_not_lose_threads(pool: SupervisedPool) -> None:
    free, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        free.wait(PATIENCE)

    async def story() -> None:
        asked = asyncio.ensure_future(pool.run(hang, 0.5))
        await asyncio.to_thread(begun.wait)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        while threads() != 3:  # the watch stays: the thread hangs all the same
            await asyncio.sleep(0.01)
        assert await pool.run(lambda: 7, PATIENCE) == 7

    asyncio.run(story())
    free.set()
    soon(lambda: threads() == 2)


def test_results_for_a_closed_loop_are_dropped(pool: SupervisedPool) -> None:
    free = threading.Event()

    async def asked() -> None:
        waiting: Awaitable[Any] = asyncio.ensure_future(pool.run(lambda: free.wait(PATIENCE), PATIENCE))
        await asyncio.sleep(0.02)
        del waiting

    asyncio.run(asked())
    free.set()
    soon(lambda: threads() <= 2)
    assert asyncio.run(pool.run(lambda: 7, PATIENCE)) == 7


def test_close_ends_idle_threads() -> None:
    one = SupervisedPool(3, name="pool-under-test")
    soon(lambda: threads() == 3)
    one.close()
    soon(lambda: threads() == 0)


# -- one thread for jobs in order ----------------------------------------------------------------------------------


def test_jobs_run_in_order_and_replace_waiting_ones() -> None:
    jobs, go, done = JobQueue("pool-under-test"), threading.Event(), list[str]()
    jobs.add("first", lambda: done.append("first") if go.wait(PATIENCE) else None)
    for i in range(3):
        jobs.add("state", lambda i=i: done.append(f"state {i}"), alone=True)  # type: ignore[misc]
        jobs.add("part", lambda i=i: done.append(f"part {i}"))  # type: ignore[misc]
    assert (jobs.count("first"), jobs.count("state"), jobs.count("part")) == (1, 1, 3)
    assert not jobs.wait("state", 0.0)
    assert threads() == 1
    go.set()
    assert jobs.wait("part", PATIENCE)
    assert done == ["first", "part 0", "part 1", "state 2", "part 2"]
    soon(lambda: threads() == 0)
    jobs.add("state", lambda: done.append("again"))
    assert jobs.wait("state", PATIENCE)
    assert done[-1] == "again"


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_failed_job_does_not_stop_the_queue(error: type[BaseException]) -> None:
    jobs, done = JobQueue("pool-under-test"), list[int]()

    def fail() -> None:
        raise error("as it was told to")

    jobs.add("a", fail)
    jobs.add("a", lambda: done.append(1))
    assert jobs.wait("a", PATIENCE)
    assert done == [1]
    assert jobs.seconds == 0.0


def test_waiting_jobs_can_be_dropped() -> None:
    jobs, go, done = JobQueue("pool-under-test"), threading.Event(), list[int]()
    jobs.add("a", lambda: done.append(1) if go.wait(PATIENCE) else None)
    soon(lambda: jobs.seconds > 0)
    jobs.add("a", lambda: done.append(2))
    jobs.drop("a")
    go.set()
    assert jobs.wait("a", PATIENCE)
    assert done == [1]
