"""Words between the processes of one PostgreSQL: heard by all others, of one store only, and never relied on."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from rankloop.service.storage import open_database
from rankloop.service.storage.notifications import LOG, NEWS, Notification, Notifier
from tests.service.conftest import Postgres
from tests.service.running import wait_for


class End:
    """A process's end, and what it has heard."""

    def __init__(self, url: str, name: str, channels: tuple[str, ...] = (NEWS,)) -> None:
        self._database = open_database(url)
        found = self._database.notifier()
        assert found is not None
        self.notifier: Notifier = found
        self.heard: list[Notification] = []
        self.missed = 0
        self.notifier.subscribe(name, channels, self.heard.append, self._miss)
        wait_for(lambda: self.notifier.sound, "the connection", every=0.005)

    def _miss(self) -> None:
        self.missed += 1

    def close(self) -> None:
        self.notifier.stop()
        self._database.close()


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.database()


@pytest.fixture
def ends(url: str) -> Iterator[list[End]]:
    made = [End(url, "one"), End(url, "two", (NEWS, LOG))]
    yield made
    for end in made:
        end.close()


def listeners(url: str) -> list[Any]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'rankloop' AND query LIKE 'LISTEN%'"
        return [row[0] for row in connection.execute(sql).fetchall()]


def test_others_hear_what_they_listen_for_and_nobody_hears_himself(ends: list[End]) -> None:
    one, two = ends
    two.notifier.publish(Notification("outcomes", "shop"))
    two.notifier.publish(Notification("saved", "shop", 7, seq=12))
    one.notifier.publish(Notification("outcomes", 'späť\'s "shop"'))
    wait_for(lambda: one.heard and two.heard, "the notifications", every=0.005)
    assert one.heard == [Notification("saved", "shop", 7, 0, 12)]  # who only ranks does not ask for outcomes
    assert two.heard == [Notification("outcomes", 'späť\'s "shop"')]


def test_of_what_comes_close_together_the_newest_is_said(ends: list[End]) -> None:
    one, two = ends
    for seq in range(100):
        one.notifier.publish(Notification("saved", "shop", 7, seq=seq))
    one.notifier.publish(Notification("changed", "shop"))
    wait_for(lambda: Notification("changed", "shop") in two.heard, "the last notification", every=0.005)
    said = [notification.seq for notification in two.heard if notification.kind == "saved"]
    assert said[-1] == 99
    assert said == sorted(said)
    assert len(said) < 50


def test_stores_of_one_database_do_not_hear_each_other(postgres: Postgres, ends: list[End]) -> None:
    other = End(postgres.database(), "other")
    try:
        other.notifier.publish(Notification("changed", "theirs"))
        ends[1].notifier.publish(Notification("changed", "ours"))
        wait_for(lambda: ends[0].heard, "a notification", every=0.005)
        assert ends[0].heard == [Notification("changed", "ours")]
        assert other.heard == []
    finally:
        other.close()


def test_a_lost_connection_is_known_and_opened_again(url: str, ends: list[End]) -> None:
    one, two = ends
    assert (one.missed, two.missed) == (1, 1)  # whatever was said before they listened
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        for process in listeners(url):
            connection.execute("SELECT pg_terminate_backend(%s)", (process,))
    wait_for(lambda: one.missed == two.missed == 2, "both to know that notifications may be lost")
    wait_for(lambda: one.notifier.sound and two.notifier.sound, "both to listen again")
    one.notifier.publish(Notification("changed", "shop"))
    wait_for(lambda: two.heard, "a notification")
    assert two.heard == [Notification("changed", "shop")]


def test_what_is_not_a_word_of_this_release_is_passed_over(ends: list[End]) -> None:
    one, two = ends
    one.notifier._received("nonsense")
    one.notifier._received('["two", ["saved", "shop", 1, 2]]')
    one.notifier._received('["two", ["new", "shop", 1, 2, 3, "what comes later"]]')
    two.notifier.publish(Notification("changed", "shop"))
    wait_for(lambda: len(one.heard) > 1, "a notification")
    assert one.heard == [Notification("saved", "shop", 1, 2), Notification("changed", "shop")]


def test_nothing_is_written_to_a_descriptor_that_is_somebody_else_s(url: str) -> None:
    """What learning says while a process ends may come after its pipe was closed, and the numbers are used again."""
    end = End(url, "me")
    notifier = end.notifier
    end.close()
    pairs = [socket.socketpair() for _ in range(8)]
    notifier.publish(Notification("saved", "shop"))
    notifier.stop()
    sockets = [one for pair in pairs for one in pair]
    for one in sockets:
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(10)
    for one in sockets:
        one.close()


def test_a_process_of_many_connections_hears(url: str) -> None:
    """Its newest descriptor is beyond 1,023."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limit[1]), limit[1]))
    pipes = [os.pipe() for _ in range(520)]
    ends = [End(url, name) for name in ("one", "other")]
    try:
        ends[0].notifier.publish(Notification("saved", "shop"))
        wait_for(lambda: ends[1].heard, "the notification")
    finally:
        for end in ends:
            end.close()
        for pipe in pipes:
            for descriptor in pipe:
                os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_sqlite_passes_nothing_on(tmp_path: Any) -> None:
    assert open_database(str(tmp_path / "a.db")).notifier() is None
