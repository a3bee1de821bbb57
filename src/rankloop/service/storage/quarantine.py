"""Rankers whose learner hung: what was skipped, and which rankers are in quarantine. Functions inside a transaction.

A ranker in quarantine is not learned for a while. Then it is tried again; each time that it hangs within an hour of the
last time, the quarantine is twice as long, up to `LONGEST`. Everything else goes on: it is ranked, its attribution
windows close, its experiments are counted.
"""

from __future__ import annotations

from typing import NamedTuple

from rankloop.service.storage.admin import Ranker, ranker
from rankloop.service.storage.database import Connection

FIRST, LONGEST = 5.0, 600.0  # seconds of a quarantine
FORGET = 3600.0  # seconds without trouble after which the next is the first again


def delay(times: int) -> float:
    """Seconds until a learner that has failed so often is tried again.

    >>> delay(1), delay(3), delay(50)
    (5.0, 20.0, 600.0)
    """
    return min(LONGEST, FIRST * 2.0 ** min(times - 1, 30))


class Quarantine(NamedTuple):
    """A ranker that is, or was, not learned because its learner hung."""

    revision: int  # of the ranker when it hung; whoever changes it ends the quarantine
    start: float
    end: float

    def holds(self, revision: int, now: float) -> bool:
        """Whether it is not to be learned yet. A clock that was set back ends it."""
        return revision == self.revision and self.start <= now < self.end


def note(
    connection: Connection, row: Ranker, what: str, seq: int, text: str, now: float, most: int, holder: str
) -> bool:
    """Store where a ranker's learner hung; True if it is in quarantine.

    An outcome at which `learn` hung is skipped from now on, as one is that cannot be learned: whoever folds the log
    skips it too. After `most` of them, and after anything else, the ranker is put in quarantine.

    What stood still may not have been the learner but its whole process, `holder`, or its machine, while another took
    the lease and learned on. If a snapshot has the outcome already, it was learned, and nothing is stored. If none
    has, whoever holds the lease now loses it: who learns next begins at the snapshot, and skips the outcome too.
    """
    ranker(connection, row.name, lock=True)  # no snapshot is saved meanwhile
    found = connection.row("SELECT generation, seq FROM snapshots WHERE ranker = ?", row.name)
    if what == "learn" and found is not None and int(found[0]) >= row.generation and int(found[1]) > seq:
        return False
    if what == "learn":
        connection.run("DELETE FROM leases WHERE ranker = ? AND holder <> ?", row.name, holder)
    sql = "SELECT times FROM troubles WHERE ranker = ? AND revision = ? AND created > ?"
    before = connection.row(sql, row.name, row.revision, now - FORGET)
    times = 1 + (int(before[0]) if before is not None else 0)
    hold = what != "learn" or times >= most
    if what == "learn":
        connection.run("UPDATE outcomes SET learn = 0 WHERE ranker = ? AND seq = ?", row.name, seq)
        text = f"{text}; the outcome is skipped"
    connection.run("DELETE FROM troubles WHERE ranker = ?", row.name)
    connection.insert(
        "troubles",
        "ranker, revision, times, given_up, text, created",
        [(row.name, row.revision, times, int(hold), text, now)],
    )
    return hold


def recovered(connection: Connection, name: str) -> None:
    """End a quarantine: the ranker is learned again. That an outcome was skipped stays in its status."""
    skipped = "CASE WHEN SUBSTR(text, 1, 6) = 'learn ' THEN text ELSE '' END"
    connection.run(f"UPDATE troubles SET given_up = 0, text = {skipped} WHERE ranker = ? AND given_up = 1", name)


def quarantined(connection: Connection) -> dict[str, Quarantine]:
    """The rankers in quarantine, also those that are due to be tried again."""
    rows = connection.rows("SELECT ranker, revision, times, created FROM troubles WHERE given_up = 1")
    return {
        name: Quarantine(int(revision), created, created + delay(int(times))) for name, revision, times, created in rows
    }


def texts(connection: Connection) -> dict[str, tuple[int, str]]:
    """(revision, what happened) of every ranker that had trouble."""
    rows = connection.rows("SELECT ranker, revision, times, given_up, text FROM troubles WHERE text <> ''")
    return {
        name: (int(revision), f"{text}; learning is tried again after {delay(int(times)):g} s" if hold else text)
        for name, revision, times, hold, text in rows
    }
