"""Learning as a process of its own: it folds, publishes to those who rank beside it, and saves."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence

from rankloop.service.settings import Settings
from rankloop.service.storage import admin
from rankloop.service.storage.notifications import LOG, NEWS
from rankloop.service.training.channel import Outbox
from rankloop.service.training.crash_breadcrumb import Slate
from rankloop.service.training.learning import Learning
from rankloop.service.training.watch import Entry
from rankloop.service.worker.process import Process

BEAT = 0.5  # seconds between signs of life to the supervisor
HUNG = 75  # the exit code of a process that ended itself because a learner hung in it
logger = logging.getLogger("rankloop")


def run(settings: Settings, ends: Sequence[socket.socket], slate: Slate, beat: Callable[[], None]) -> None:
    """Learn until SIGTERM."""
    stopping, supervisor = threading.Event(), os.getppid()

    def live() -> None:  # in a thread of its own from the start: it stands still only if the whole process does
        while not stopping.is_set():
            beat()
            if os.getppid() != supervisor:  # it has gone without a word
                stopping.set()
            time.sleep(BEAT)

    threading.Thread(target=live, name="rankloop-alive", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor says when; those who rank may still be answering
    process = Process(settings)
    process.open()
    outbox = Outbox(ends)
    learning = Learning(process, outbox.publish)
    learning.watch.slate, learning.on_change = slate, outbox.look

    def end(entry: Entry) -> None:
        learning.watch.take_down(entry)
        logger.error("this process ends, to be started anew")
        os._exit(HUNG)

    learning.watch.on_hanging = end
    _remember(process, learning, slate)
    slate.worker = process.worker
    learning.start()
    outbox.serve(learning.tell, learning.housekeeping.cycle, learning.publish_all)
    if process.notifier is not None:
        process.notifier.subscribe(process.worker, [NEWS, LOG], learning.on_notification, learning.housekeeping.hasten)
    learning.publish_all()
    gc.collect()
    gc.freeze()
    while not stopping.wait(BEAT):
        if dead := learning.dead_threads():
            logger.error("threads have ended: %s; this process ends, to be started again", ", ".join(dead))
            os._exit(HUNG)
    learning.stop()
    process.close()


def _remember(process: Process, learning: Learning, slate: Slate) -> None:
    """If the one before this was ended by the watchdog, what stands on the slate is where it hung."""
    left = slate.left_behind()
    if left is None:
        return
    row = process.database.read(lambda c: admin.ranker(c, left.name))
    if row is not None:
        learning.watch.take_down(Entry(row, left.what, left.seq, 0.0, left.worker))
