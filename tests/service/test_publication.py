"""Publications reach ranking processes bit for bit, and a process that does not read blocks nobody."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rankloop.service.training.fold import Publication
from rankloop.service.training.hang_detection import CrashBreadcrumb, Crumb
from rankloop.service.training.publication import (
    MAX_UNREAD,
    OUTCOMES_LOGGED,
    STARTED,
    STORE_CHANGED,
    Publisher,
    Subscriber,
    socket_pairs,
)
from tests.waiting import wait_for


def publication(learned: int, base: int | None = None, size: int = 3) -> Publication:
    rng = np.random.default_rng(learned)
    arrays = {
        "theta_": rng.random(size),
        "inverse_": rng.random((size, size)),
        "none_": np.zeros((0, 4)),
        "items_": rng.integers(0, 9, size),
        "flags_": rng.random(size) < 0.5,
        "words_": np.array(["a", "späť"]),
        "one_": np.array(2.5),
    }
    return Publication("shop", 7, learned, base, arrays)


def check_same(one: Publication, two: Publication) -> None:
    assert one[:4] == two[:4]
    assert one.arrays.keys() == two.arrays.keys()
    for name, array in one.arrays.items():
        assert (array.dtype, array.shape) == (two.arrays[name].dtype, two.arrays[name].shape)
        assert array.tobytes() == two.arrays[name].tobytes()


class Ends:
    """Two ranking processes and a learning process."""

    def __init__(self) -> None:
        self._pairs = socket_pairs(2)
        self.subscribers = [Subscriber(pair.ranker) for pair in self._pairs]
        self.publisher = Publisher([pair.learner for pair in self._pairs])
        self.requests: list[str] = []
        names = ("outcomes", "changed", "whole")
        self.publisher.serve(*(lambda name=name: self.requests.append(name) for name in names))

    def read(self, i: int, taken: bool = True) -> list[Publication]:
        found: list[Publication] = []

        def take(one: Publication) -> bool:
            found.append(one)
            return taken

        self.subscribers[i].read(take)
        return found

    def wait_read(self, i: int, count: int) -> None:
        wait_for(lambda: self.publisher._read[i] == count, f"{count} to be read", every=0.001)

    def check_requests(self, *names: str) -> None:
        wait_for(lambda: self.requests == list(names), f"the requests {names}", every=0.001)
        self.requests.clear()


def test_every_ranking_process_gets_the_same_bits_and_no_descriptor_leaks() -> None:
    ends, descriptors = Ends(), Path("/proc/self/fd")
    before = len(list(descriptors.iterdir())) if descriptors.exists() else 0
    for t in range(30):
        sent = [publication(2 * t), publication(2 * t + 1, base=2 * t, size=300)]
        for one in sent:
            assert ends.publisher.publish(one)
        for i in (0, 1):
            for one, got in zip(sent, ends.read(i), strict=True):
                check_same(one, got)
            assert ends.read(i) == []
            ends.wait_read(i, 2 * t + 2)
    if before:
        assert len(list(descriptors.iterdir())) <= before + 1


def test_a_process_that_does_not_read_blocks_nobody() -> None:
    ends = Ends()
    sent = []
    for t in range(20):
        sent.append(ends.publisher.publish(publication(t)))
        assert len(ends.read(0)) == 1
        ends.wait_read(0, t + 1)
    assert sent == [True] * MAX_UNREAD + [False] * (20 - MAX_UNREAD)
    assert [one.learned for one in ends.read(1)] == list(range(MAX_UNREAD))
    ends.wait_read(1, MAX_UNREAD)
    assert ends.publisher.publish(publication(99))
    assert [one.learned for one in ends.read(1)] == [99]


def test_requests_reach_the_learning_process() -> None:
    ends = Ends()
    assert ends.publisher.publish(publication(5, base=4))
    ends.read(0, taken=False)
    ends.check_requests("whole")
    ends.subscribers[1].request(OUTCOMES_LOGGED)
    ends.check_requests("outcomes")
    ends.subscribers[1].request(STORE_CHANGED)
    ends.check_requests("changed", "outcomes")
    ends.publisher.store_changed()
    ends.read(1)
    changed: list[int] = []
    for i in (0, 1):
        ends.publisher.store_changed()
        ends.subscribers[i].read(lambda _: True, lambda i=i: changed.append(i))  # type: ignore[misc]
    assert set(changed) == {0, 1}


def test_a_restarted_ranking_process_reads_what_is_left_and_gets_new_publications() -> None:
    ends = Ends()
    for t in range(MAX_UNREAD + 1):
        ends.publisher.publish(publication(t))
    ends.subscribers[0] = Subscriber(ends._pairs[0].ranker)
    ends.subscribers[0].request(STARTED)
    ends.check_requests("whole")
    assert len(ends.read(0)) == MAX_UNREAD
    ends.wait_read(0, MAX_UNREAD)
    for t in range(MAX_UNREAD):
        ends.publisher.publish(publication(50 + t))
    assert [one.learned for one in ends.read(0)] == [50 + t for t in range(MAX_UNREAD)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_breadcrumb_outlives_its_process() -> None:
    breadcrumb = CrashBreadcrumb()
    if os.fork() == 0:
        breadcrumb.write("späť", "learn", 12)
        os._exit(0)
    os.wait()
    assert breadcrumb.read() is None  # it was not killed, so nothing hung
    breadcrumb.worker = "here:1:abc"
    breadcrumb.write("shop", "learn", 3)
    breadcrumb.mark_killed()
    assert breadcrumb.read() == Crumb("shop", "learn", 3, "here:1:abc")
    assert breadcrumb.read() is None
    breadcrumb.write("shop", "learn", 4)
    breadcrumb.clear()
    breadcrumb.mark_killed()
    assert breadcrumb.read() is None
