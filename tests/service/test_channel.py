"""From the process that learns to those that rank: what is sent arrives bit for bit, and nobody waits for anybody."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from rankloop.service.training.channel import UNREAD, Inbox, Outbox, links
from rankloop.service.training.crash_breadcrumb import Left, Slate
from rankloop.service.training.fold import Publication
from tests.waiting import wait_for


def news(learned: int, base: int | None = None, size: int = 3) -> Publication:
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


def same(one: Publication, two: Publication) -> None:
    assert one[:4] == two[:4]
    assert one.arrays.keys() == two.arrays.keys()
    for name, array in one.arrays.items():
        assert (array.dtype, array.shape) == (two.arrays[name].dtype, two.arrays[name].shape)
        assert array.tobytes() == two.arrays[name].tobytes()


class Ends:
    """Two that rank, and one that learns."""

    def __init__(self) -> None:
        self._pairs = links(2)
        self.inboxes = [Inbox(pair.ranker) for pair in self._pairs]
        self.outbox = Outbox([pair.learner for pair in self._pairs])
        self.heard: list[str] = []
        self.outbox.serve(*(lambda word=word: self.heard.append(word) for word in ("wake", "look", "all")))

    def read(self, i: int, fine: bool = True) -> list[Publication]:
        found: list[Publication] = []

        def take(one: Publication) -> bool:
            # The arrays are those of the sender's memory: good for as long as someone has them.
            found.append(one)
            return fine

        self.inboxes[i].read(take)
        return found

    def known(self, i: int, read: int) -> None:
        """Wait until the sender knows that so many were read."""
        wait_for(lambda: self.outbox._read[i] == read, f"{read} to be read", every=0.001)

    def hears(self, *words: str) -> None:
        wait_for(lambda: self.heard == list(words), f"{words} to be heard", every=0.001)
        self.heard.clear()


def test_everyone_gets_the_same_bits() -> None:
    ends = Ends()
    sent = [news(3), news(4, base=3, size=300)]
    for one in sent:
        assert ends.outbox.publish(one)
    for i in (0, 1):
        for one, got in zip(sent, ends.read(i), strict=True):
            same(one, got)
        assert ends.read(i) == []


def test_what_is_sent_holds_no_descriptors() -> None:
    ends = Ends()

    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").exists():
        pytest.skip("counts descriptors in /proc")
    before = opened()
    for t in range(50):
        assert ends.outbox.publish(news(t))
        for i in (0, 1):
            same(news(t), ends.read(i)[0])
            ends.known(i, t + 1)
    assert opened() <= before + 1


def test_one_who_does_not_read_costs_the_others_nothing() -> None:
    """It is told once it reads again, and whoever sends knows that the next must be whole."""
    ends = Ends()
    sent = []
    for t in range(20):
        sent.append(ends.outbox.publish(news(t)))
        assert len(ends.read(0)) == 1
        ends.known(0, t + 1)
    assert sent == [True] * UNREAD + [False] * (20 - UNREAD)
    assert [one.learned for one in ends.read(1)] == list(range(UNREAD))
    ends.known(1, UNREAD)
    assert ends.outbox.publish(news(99))
    assert [one.learned for one in ends.read(1)] == [99]


def test_what_cannot_be_used_is_asked_for_whole() -> None:
    ends = Ends()
    assert ends.outbox.publish(news(5, base=4))
    ends.read(0, fine=False)
    ends.hears("all")
    ends.inboxes[1].wake()
    ends.hears("wake")
    ends.inboxes[1].look()
    ends.hears("look", "wake")


def test_a_new_one_at_an_old_end_begins_anew() -> None:
    """What lay there for the one before it is read, and does not count against it."""
    ends = Ends()
    for t in range(UNREAD + 1):
        ends.outbox.publish(news(t))
    ends.inboxes[0] = Inbox(ends._pairs[0].ranker)
    ends.inboxes[0].hello()
    ends.hears("all")
    assert len(ends.read(0)) == UNREAD
    ends.known(0, UNREAD)
    for t in range(UNREAD):
        ends.outbox.publish(news(50 + t))
    assert [one.learned for one in ends.read(0)] == [50 + t for t in range(UNREAD)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_slate_outlives_its_process() -> None:
    slate = Slate()
    if os.fork() == 0:
        slate.write("späť", "learn", 12)
        os._exit(0)
    os.wait()
    assert slate.left_behind() is None  # it was not ended by whoever watches: nothing hung
    slate.worker = "here:1:abc"
    slate.write("shop", "learn", 3)
    slate.mark()
    assert slate.left_behind() == Left("shop", "learn", 3, "here:1:abc")
    assert slate.left_behind() is None
    slate.write("shop", "learn", 4)
    slate.wipe()
    slate.mark()
    assert slate.left_behind() is None


def test_everyone_is_told_to_look() -> None:
    ends = Ends()
    ends.outbox.look()
    looked: list[int] = []
    for i in (0, 1):
        ends.inboxes[i].read(lambda _: True, lambda i=i: looked.append(i))  # type: ignore[misc]
    assert looked == [0, 1]
