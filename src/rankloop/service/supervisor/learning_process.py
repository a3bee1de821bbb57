"""The learning process: it learns, publishes to the ranking processes of the machine, and maintains the store."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence

from rankloop.service.maintenance.housekeeping import Maintenance
from rankloop.service.settings import Settings
from rankloop.service.storage import rankers
from rankloop.service.storage.notifications import LOG, NEWS
from rankloop.service.training.hang_detection import CrashBreadcrumb, LearnerCall
from rankloop.service.training.learning import Learning
from rankloop.service.training.publication import Publisher
from rankloop.service.worker.process import Process

HEARTBEAT = 0.5  # seconds between heartbeats to the supervisor
HUNG = 75  # exit code of a process that ended itself because a learner hung in it
logger = logging.getLogger("rankloop")


def run(
    settings: Settings, ends: Sequence[socket.socket], breadcrumb: CrashBreadcrumb, heartbeat: Callable[[], None]
) -> None:
    """Learn until SIGTERM."""
    stopping, supervisor = threading.Event(), os.getppid()

    def live() -> None:  # in a thread of its own from the start: it stops only if the whole process does
        while not stopping.is_set():
            heartbeat()
            if os.getppid() != supervisor:  # the supervisor was killed
                stopping.set()
            time.sleep(HEARTBEAT)

    threading.Thread(target=live, name="rankloop-alive", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor ends it after the ranking processes
    process = Process(settings)
    process.open()
    publisher = Publisher(ends)
    learning = Learning(process, publisher.publish)
    detector = learning.hang_detector
    detector.breadcrumb, learning.on_change = breadcrumb, publisher.store_changed
    maintenance = Maintenance(process, learning, lambda _: learning.outcomes_logged(), learning.changed)

    def end(call: LearnerCall) -> None:
        detector.record(call)
        logger.error("this process ends and is started again")
        os._exit(HUNG)

    detector.on_hang = end
    if (left := breadcrumb.read()) is not None:  # the supervisor killed the process before this one in that call
        row = process.database.read(lambda c: rankers.get_ranker(c, left.ranker))
        if row is not None:
            detector.record(LearnerCall(row, left.what, left.seq, 0.0, left.worker))
    breadcrumb.worker = process.worker
    learning.start()
    maintenance.start()
    publisher.serve(learning.outcomes_logged, learning.keep_leases, learning.publish_all)
    if process.notifier is not None:
        process.notifier.subscribe(process.worker, [NEWS, LOG], learning.on_notification, learning.hasten)
    learning.publish_all()
    gc.collect()
    gc.freeze()
    while not stopping.wait(HEARTBEAT):
        if dead := [*learning.dead_threads(), *maintenance.dead_threads()]:
            logger.error("threads have ended: %s; this process ends, to be started again", ", ".join(dead))
            os._exit(HUNG)
    maintenance.stop()
    learning.stop()
    process.close()
