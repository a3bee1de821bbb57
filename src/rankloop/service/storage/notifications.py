"""Notifications between the processes that share a PostgreSQL store, by LISTEN and NOTIFY.

A notification is a hint: what it is about is in the store, so notifications may be lost, repeated or late. They use a
connection and commits of their own: PostgreSQL serializes commits that notify, and feedback must not wait in that line.
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

GATHER = 0.02  # seconds in which notifications are collected: one commit for all of them
PING_EVERY = 2.0  # seconds without traffic after which the connection is checked
ANSWER = 3.0  # seconds to wait for an answer of the server
ALIVE_SECONDS = PING_EVERY + ANSWER  # seconds without an answer after which notifications may be lost
RECONNECT = 0.5  # seconds before a lost connection is opened again
MAX_WAITING = 10_000  # notifications that may wait for a connection; processes that miss some poll
NEWS, LOG = "news", "log"  # channels: saved or changed states, for all; new outcomes, for learning workers
logger = logging.getLogger("rankloop")


class Notification(NamedTuple):
    """What has happened to a ranker."""

    kind: str  # saved, part, changed: on NEWS; outcomes: on LOG
    ranker: str
    generation: int = 0
    base: int = 0  # of a state delta: the outcomes that the receiver must have
    seq: int = 0  # outcomes in what was saved


_decode = msgspec.json.Decoder(tuple[str, Notification]).decode


class Notifier:
    """One process's end of the channel.

    Parameters
    ----------
    connect
        Opens a driver connection in autocommit mode.
    watched
        Context that cuts a connection that does not answer for so many seconds.
    """

    def __init__(
        self, connect: Callable[[], Any], watched: Callable[[int, float], AbstractContextManager[None]]
    ) -> None:
        self._connect, self._watched = connect, watched
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str, str], Notification] = {}  # (channel, kind, ranker) -> the newest
        self._sender = ""
        self._receive: Callable[[Notification], None] = lambda _: None
        self._missed: Callable[[], None] = lambda: None
        self._channels: Sequence[str] = ()
        self._answered = float("-inf")  # monotonic: when the connection last worked
        self._stopping = False
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        self._thread = threading.Thread(target=self._work, name="rankloop-notifications", daemon=True)

    def subscribe(
        self, sender: str, channels: Sequence[str], receive: Callable[[Notification], None], missed: Callable[[], None]
    ) -> None:
        """Start to listen. `receive` gets notifications of others than `sender`; `missed` is called when some may have
        been lost. Both run in the thread that all notifications wait for."""
        self._sender, self._channels, self._receive, self._missed = sender, channels, receive, missed
        self._thread.start()

    def stop(self) -> None:
        """Send what waits, then stop."""
        self._stopping = True
        self._poke()
        if self._thread.is_alive():
            self._thread.join(timeout=ANSWER)

    @property
    def sound(self) -> bool:
        """Whether notifications of others arrive here, as far as can be known."""
        return time.monotonic() - self._answered < ALIVE_SECONDS

    def publish(self, notification: Notification) -> None:
        """Send a notification soon, without waiting; only the newest of a kind and ranker is sent."""
        channel = LOG if notification.kind == "outcomes" else NEWS
        with self._lock:
            if len(self._waiting) < MAX_WAITING:
                self._waiting[channel, notification.kind, notification.ranker] = notification
        self._poke()

    def _poke(self) -> None:
        with self._lock, suppress(OSError):  # full: the thread is awake
            if self._wake >= 0:  # a closed descriptor may belong to something else
                os.write(self._wake, b"x")

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        logged = False
        while not self._stopping:
            try:
                self._listen()
                logged = False
            except Exception as error:  # whatever it is: the others poll meanwhile
                if not logged:
                    logger.warning("notifications of other processes do not arrive, the store is polled: %s", error)
                logged = True
            self._answered = float("-inf")
            if not self._stopping:
                time.sleep(RECONNECT)
        with self._lock:
            for end in (self._woken, self._wake):
                os.close(end)
            self._woken = self._wake = -1

    def _listen(self) -> None:
        raw = self._connect()
        try:
            with self._watched(raw.fileno(), ANSWER):
                # Channels belong to a database, stores may be schemas of one.
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
        with selectors.DefaultSelector() as either:  # `select` fails for descriptors above 1,023
            for descriptor in (raw.fileno(), self._woken):
                either.register(descriptor, selectors.EVENT_READ)
            ready = {key.fd for key, _ in either.select(PING_EVERY)}
        if raw.fileno() in ready:
            raw.pgconn.consume_input()
            while note := raw.pgconn.notifies():
                self._received(note.extra.decode())
            self._answered = time.monotonic()
        if self._woken in ready:
            time.sleep(GATHER)
            os.read(self._woken, 65536)
            self._send(raw, store)
        if time.monotonic() - self._answered >= PING_EVERY:
            with self._watched(raw.fileno(), ANSWER):
                raw.execute("SELECT 1")
            self._answered = time.monotonic()

    def _send(self, raw: Any, store: str) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        channels = [_channel(store, channel) for channel, _, _ in waiting]
        texts = [msgspec.json.encode((self._sender, one)).decode() for one in waiting.values()]
        with self._watched(raw.fileno(), ANSWER):
            raw.execute("SELECT pg_notify(c, t) FROM unnest(%s::text[], %s::text[]) AS sent (c, t)", (channels, texts))
        self._answered = time.monotonic()

    def _received(self, text: str) -> None:
        try:
            sender, notification = _decode(text)
        except msgspec.DecodeError:
            return  # of another version or another program
        if sender != self._sender:
            self._receive(notification)


def _channel(store: str, channel: str) -> str:
    """Return a channel's name, which fits PostgreSQL's limit for any schema name."""
    return f"rankloop_{blake2b(store.encode(), digest_size=8).hexdigest()}_{channel}"
