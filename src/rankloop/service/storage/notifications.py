"""Notifications between the processes of one PostgreSQL, by NOTIFY: something new is in the store.

A notification is a hint. What it is about is in the store, so it may be lost, duplicated or late. It is sent in a
commit of its own: PostgreSQL lets only one transaction that notifies commit at a time.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

GATHER = 0.02  # seconds in which notifications gather: one commit for all of them
ASK_EVERY = 2.0  # seconds after which a connection on which nothing comes is asked whether it is one
ANSWER = 3.0  # seconds for anything to be answered on it
SOUND = ASK_EVERY + ANSWER  # seconds without an answer after which notifications may be lost unseen
AGAIN = 0.5  # seconds before a lost connection is opened again
MOST = 10_000  # queued notifications; a process that misses one finds the news at its next look at the store
NEWS, LOG = "news", "log"  # for all: a state was saved or changed; for learning processes: there are outcomes
logger = logging.getLogger("rankloop")


class Notification(NamedTuple):
    """What is new."""

    kind: str  # saved, part, changed: on NEWS; outcomes: on LOG
    ranker: str
    generation: int = 0
    base: int = 0  # of a part: the outcomes that whoever takes it must know
    seq: int = 0  # how many outcomes are in what was saved


_decode = msgspec.json.Decoder(tuple[str, Notification]).decode


class Notifier:
    """One process's end.

    Parameters
    ----------
    connect
        A connection of the driver that commits by itself.
    watched
        What cuts a connection that does not answer for so many seconds.
    """

    def __init__(
        self, connect: Callable[[], Any], watched: Callable[[int, float], AbstractContextManager[None]]
    ) -> None:
        self._connect, self._watched = connect, watched
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str, str], Notification] = {}  # (channel, kind, ranker) -> the newest of them
        self._me = ""
        self._on_notification: Callable[[Notification], None] = lambda _: None
        self._missed: Callable[[], None] = lambda: None
        self._channels: Sequence[str] = ()
        self._answered = float("-inf")  # monotonic: when the connection was last known to be one
        self._stopping = False
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        self._thread = threading.Thread(target=self._work, name="rankloop-notifications", daemon=True)

    def subscribe(
        self,
        me: str,
        channels: Sequence[str],
        on_notification: Callable[[Notification], None],
        missed: Callable[[], None],
    ) -> None:
        """Begin to listen. `on_notification` gets what others publish; `missed` is called when some may be lost.

        Both are called in the thread that receives all notifications."""
        self._me, self._channels, self._receive, self._missed = me, channels, on_notification, missed
        self._thread.start()

    def stop(self) -> None:
        """Send what is queued, and end."""
        self._stopping = True
        self._poke()
        if self._thread.is_alive():
            self._thread.join(timeout=ANSWER)

    @property
    def sound(self) -> bool:
        """Whether notifications of others arrive, as far as is known."""
        return time.monotonic() - self._answered < SOUND

    def publish(self, notification: Notification) -> None:
        """Send it to the others, soon. Never blocks; of one kind and ranker only the newest is sent."""
        channel = LOG if notification.kind == "outcomes" else NEWS
        with self._lock:
            if len(self._waiting) < MOST:
                self._waiting[channel, notification.kind, notification.ranker] = notification
        self._poke()

    def _poke(self) -> None:
        with self._lock, suppress(OSError):  # full: it is awake
            if self._wake >= 0:  # closed, the number may be somebody else's by now
                os.write(self._wake, b"x")

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        told = False
        while not self._stopping:
            try:
                self._listen()
            except Exception as error:  # whatever it is: subscribers poll the store meanwhile
                if not told:
                    logger.warning("no notifications of other processes, the store is polled: %s", error)
                told = True
            else:
                told = False
            self._answered = float("-inf")
            if not self._stopping:
                time.sleep(AGAIN)
        with self._lock:
            for end in (self._woken, self._wake):
                os.close(end)
            self._woken = self._wake = -1

    def _listen(self) -> None:
        raw = self._connect()
        try:
            with self._watched(raw.fileno(), ANSWER):
                # Channels are a database's, stores may be schemas of one.
                (store,) = raw.execute("SELECT current_schema()").fetchone()
                raw.execute("SET synchronous_commit = off")
                raw.add_notify_handler(lambda note: self._received(note.payload))
                for channel in self._channels:
                    raw.execute(f"LISTEN {_channel(store, channel)}")
            self._answered = time.monotonic()
            self._missed()  # whatever was sent before this
            while not self._stopping:
                self._turn(raw, store)
            self._send(raw, store)
        finally:
            raw.close()

    def _turn(self, raw: Any, store: str) -> None:
        """Wait for a notification from either side."""
        with selectors.DefaultSelector() as either:  # `select` knows no descriptor above 1,023
            for descriptor in (raw.fileno(), self._woken):
                either.register(descriptor, selectors.EVENT_READ)
            ready = {key.fd for key, _ in either.select(ASK_EVERY)}
        if raw.fileno() in ready:
            raw.pgconn.consume_input()
            while note := raw.pgconn.notifies():
                self._received(note.extra.decode())
            self._answered = time.monotonic()
        if self._woken in ready:
            time.sleep(GATHER)
            os.read(self._woken, 65536)
            self._send(raw, store)
        if time.monotonic() - self._answered >= ASK_EVERY:
            with self._watched(raw.fileno(), ANSWER):
                raw.execute("SELECT 1")
            self._answered = time.monotonic()

    def _send(self, raw: Any, store: str) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        channels = [_channel(store, channel) for channel, _, _ in waiting]
        payloads = [msgspec.json.encode((self._me, one)).decode() for one in waiting.values()]
        with self._watched(raw.fileno(), ANSWER):
            raw.execute(
                "SELECT pg_notify(c, w) FROM unnest(%s::text[], %s::text[]) AS sent (c, w)", (channels, payloads)
            )
        self._answered = time.monotonic()

    def _received(self, payload: str) -> None:
        try:
            who, notification = _decode(payload)
        except msgspec.DecodeError:
            return  # of another release, or of somebody else's
        if who != self._me:
            self._receive(notification)


def _channel(store: str, channel: str) -> str:
    """Its name: no longer than PostgreSQL allows, whatever the schema is called."""
    return f"rankloop_{blake2b(store.encode(), digest_size=8).hexdigest()}_{channel}"
