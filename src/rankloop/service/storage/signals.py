"""Words from process to process of one PostgreSQL, over all machines: look there, something is new.

A word is a hint and never the thing itself: what it is about stands in the store, and whoever missed it finds it there
when he looks by himself. So words may be lost, double or late, and nothing is wrong.

They go by NOTIFY on a connection that does nothing else. Said inside of the transactions that they are about, they
would come exactly if those are committed; but PostgreSQL lets only one transaction that notifies commit at a time, and
holds the others until the disk has it, so everybody's feedback would stand in one line. Here a word is a commit of its
own that waits for no disk, and words that come close together share it.
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

GATHER = 0.02  # seconds in which words gather: one commit for all of them
ASK_EVERY = 2.0  # seconds after which a connection on which nothing comes is asked whether it is one
ANSWER = 3.0  # seconds for anything to be answered on it
SOUND = ASK_EVERY + ANSWER  # seconds without an answer after which words may be lost unseen
AGAIN = 0.5  # seconds before a lost connection is opened again
MOST = 10_000  # words that may wait for a connection; whoever does not hear them looks by himself
NEWS, LOG = "news", "log"  # for all: what was saved or changed; for those who learn: there are outcomes
logger = logging.getLogger("rankloop")


class Word(NamedTuple):
    """What is said."""

    what: str  # saved, part, changed: on NEWS; outcomes: on LOG
    ranker: str
    generation: int = 0
    base: int = 0  # of a part: the outcomes that whoever takes it must know
    seq: int = 0  # how many outcomes are in what was saved


_decode = msgspec.json.Decoder(tuple[str, Word]).decode


class Signals:
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
        self._waiting: dict[tuple[str, str, str], Word] = {}  # (channel, what, ranker) -> the newest of them
        self._me = ""
        self._hear: Callable[[Word], None] = lambda _: None
        self._missed: Callable[[], None] = lambda: None
        self._channels: Sequence[str] = ()
        self._answered = float("-inf")  # monotonic: when the connection was last known to be one
        self._stopping = False
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        self._thread = threading.Thread(target=self._work, name="rankloop-signals", daemon=True)

    def start(self, me: str, channels: Sequence[str], hear: Callable[[Word], None], missed: Callable[[], None]) -> None:
        """Begin to listen. `hear` is told what others than `me` say; `missed` is called when words may have been lost.
        Both in a thread that everybody's words wait for."""
        self._me, self._channels, self._hear, self._missed = me, channels, hear, missed
        self._thread.start()

    def stop(self) -> None:
        """Say what waits, and end."""
        self._stopping = True
        self._poke()
        if self._thread.is_alive():
            self._thread.join(timeout=ANSWER)

    @property
    def sound(self) -> bool:
        """Whether what others say is heard here, as far as can be known."""
        return time.monotonic() - self._answered < SOUND

    def say(self, word: Word) -> None:
        """Tell the others, soon. Never waits; of the same about the same ranker only the newest is said."""
        channel = LOG if word.what == "outcomes" else NEWS
        with self._lock:
            if len(self._waiting) < MOST:
                self._waiting[channel, word.what, word.ranker] = word
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
            except Exception as error:  # whatever it is: those who depend on words look by themselves meanwhile
                if not told:
                    logger.warning("words of other processes are not heard, what is new is looked for: %s", error)
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
                raw.add_notify_handler(lambda note: self._heard(note.payload))
                for channel in self._channels:
                    raw.execute(f"LISTEN {_channel(store, channel)}")
            self._answered = time.monotonic()
            self._missed()  # whatever was said before this
            while not self._stopping:
                self._turn(raw, store)
            self._say(raw, store)
        finally:
            raw.close()

    def _turn(self, raw: Any, store: str) -> None:
        """Wait for a word from either side."""
        with selectors.DefaultSelector() as either:  # `select` knows no descriptor above 1,023
            for descriptor in (raw.fileno(), self._woken):
                either.register(descriptor, selectors.EVENT_READ)
            ready = {key.fd for key, _ in either.select(ASK_EVERY)}
        if raw.fileno() in ready:
            raw.pgconn.consume_input()
            while note := raw.pgconn.notifies():
                self._heard(note.extra.decode())
            self._answered = time.monotonic()
        if self._woken in ready:
            time.sleep(GATHER)
            os.read(self._woken, 65536)
            self._say(raw, store)
        if time.monotonic() - self._answered >= ASK_EVERY:
            with self._watched(raw.fileno(), ANSWER):
                raw.execute("SELECT 1")
            self._answered = time.monotonic()

    def _say(self, raw: Any, store: str) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        channels = [_channel(store, channel) for channel, _, _ in waiting]
        words = [msgspec.json.encode((self._me, word)).decode() for word in waiting.values()]
        with self._watched(raw.fileno(), ANSWER):
            raw.execute("SELECT pg_notify(c, w) FROM unnest(%s::text[], %s::text[]) AS said (c, w)", (channels, words))
        self._answered = time.monotonic()

    def _heard(self, said: str) -> None:
        try:
            who, word = _decode(said)
        except msgspec.DecodeError:
            return  # of another release, or of somebody else's
        if who != self._me:
            self._hear(word)


def _channel(store: str, channel: str) -> str:
    """Its name: no longer than PostgreSQL allows, whatever the schema is called."""
    return f"rankloop_{blake2b(store.encode(), digest_size=8).hexdigest()}_{channel}"
