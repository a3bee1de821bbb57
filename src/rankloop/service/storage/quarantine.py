"""Rankers whose learner hung. Learning such a ranker pauses, twice as long after each failure within an hour.

Everything else continues: it is ranked, its attribution windows close, its experiments are counted.
"""

from __future__ import annotations

from typing import NamedTuple

from rankloop.service.storage.database import Connection
from rankloop.service.storage.rankers import Ranker, get_ranker

FIRST, LONGEST = 5.0, 600.0  # seconds of a quarantine
FORGET = 3600.0  # seconds after which a failure no longer counts


def delay(failures: int) -> float:
    """Return the seconds until a learner is tried again after so many failures.

    >>> delay(1), delay(3), delay(50)
    (5.0, 20.0, 600.0)
    """
    return min(LONGEST, FIRST * 2.0 ** min(failures - 1, 30))


class Quarantine(NamedTuple):
    """A ranker that is, or was, not learned because its learner hung."""

    revision: int  # of the ranker when it hung; a change of it ends the quarantine
    start: float
    end: float

    def holds(self, revision: int, now: float) -> bool:
        """Return whether the ranker must not be learned yet. A clock that was set back ends it."""
        return revision == self.revision and self.start <= now < self.end


def add_failure(
    connection: Connection, row: Ranker, what: str, seq: int, text: str, now: float, most: int, holder: str
) -> bool:
    """Store where a ranker's learner hung; return whether it is in quarantine.

    An outcome at which `learn` hung is skipped by every fold from now on. After `most` of them, and after a failure of
    another method, the ranker is put in quarantine.

    Perhaps not the learner but the whole process `holder` was stopped, and another one has taken the lease. If a
    snapshot has the outcome, it was learned, and nothing is stored. Otherwise the other holder loses the lease: the
    next one starts at the snapshot and skips the outcome, too.
    """
    get_ranker(connection, row.name, lock=True)  # no snapshot is saved meanwhile
    found = connection.row("SELECT generation, seq FROM snapshots WHERE ranker = ?", row.name)
    if what == "learn" and found is not None and int(found[0]) >= row.generation and int(found[1]) > seq:
        return False
    if what == "learn":
        connection.run("DELETE FROM leases WHERE ranker = ? AND holder <> ?", row.name, holder)
    sql = "SELECT failures FROM quarantine WHERE ranker = ? AND revision = ? AND created > ?"
    before = connection.row(sql, row.name, row.revision, now - FORGET)
    failures = 1 + (int(before[0]) if before is not None else 0)
    active = what != "learn" or failures >= most
    if what == "learn":
        connection.run("UPDATE outcomes SET learn = 0 WHERE ranker = ? AND seq = ?", row.name, seq)
        text = f"{text}; the outcome is skipped"
    connection.run("DELETE FROM quarantine WHERE ranker = ?", row.name)
    connection.insert(
        "quarantine",
        "ranker, revision, failures, active, text, created",
        [(row.name, row.revision, failures, int(active), text, now)],
    )
    return active


def end_quarantine(connection: Connection, name: str) -> None:
    """End a quarantine. That an outcome was skipped stays in the ranker's status."""
    skipped = "CASE WHEN SUBSTR(text, 1, 6) = 'learn ' THEN text ELSE '' END"
    connection.run(f"UPDATE quarantine SET active = 0, text = {skipped} WHERE ranker = ? AND active = 1", name)


def quarantined(connection: Connection) -> dict[str, Quarantine]:
    """Return the rankers in quarantine, also those that are due to be tried again."""
    rows = connection.rows("SELECT ranker, revision, failures, created FROM quarantine WHERE active = 1")
    return {
        name: Quarantine(int(revision), created, created + delay(int(failures)))
        for name, revision, failures, created in rows
    }


def failure_texts(connection: Connection) -> dict[str, tuple[int, str]]:
    """Return (revision, description) of every ranker whose learner hung."""
    rows = connection.rows("SELECT ranker, revision, failures, active, text FROM quarantine WHERE text <> ''")
    return {
        name: (int(revision), f"{text}; learning is tried again after {delay(int(failures)):g} s" if active else text)
        for name, revision, failures, active, text in rows
    }
