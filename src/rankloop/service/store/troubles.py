"""Rankers whose learner hung: why they are not learned, or what was passed over. Functions inside a transaction."""

from __future__ import annotations

from rankloop.service.store.admin import Ranker, ranker
from rankloop.service.store.database import Connection


def note(
    connection: Connection, row: Ranker, what: str, seq: int, text: str, now: float, most: int, holder: str
) -> bool:
    """Take down where a ranker's learner hung; True if it is learned no more until someone changes the ranker.

    An outcome at which `learn` hung is passed over from now on, as one is that cannot be learned: whoever folds the log
    passes over it too. After `most` of them, and after anything else, the ranker is left alone.

    What stood still may not have been the learner but its whole process, `holder`, or its machine, while another took
    the lease and learned on. If a snapshot has the outcome already, it was learned, and nothing is taken down. If none
    has, whoever holds the lease now loses it: who learns next begins at the snapshot, and passes over the outcome too.
    """
    ranker(connection, row.name, lock=True)  # no snapshot is saved meanwhile
    found = connection.row("SELECT generation, seq FROM snapshots WHERE ranker = ?", row.name)
    if what == "learn" and found is not None and int(found[0]) >= row.generation and int(found[1]) > seq:
        return False
    if what == "learn":
        connection.run("DELETE FROM leases WHERE ranker = ? AND holder <> ?", row.name, holder)
    found = connection.row("SELECT times, revision FROM troubles WHERE ranker = ?", row.name)
    times = 1 + (int(found[0]) if found is not None and int(found[1]) == row.revision else 0)
    given_up = what != "learn" or times >= most
    if what == "learn":
        connection.run("UPDATE outcomes SET learn = 0 WHERE ranker = ? AND seq = ?", row.name, seq)
    rest = "it is learned no more until the ranker is changed" if given_up else "the outcome is passed over"
    connection.run("DELETE FROM troubles WHERE ranker = ?", row.name)
    connection.insert(
        "troubles",
        "ranker, revision, times, given_up, text, created",
        [(row.name, row.revision, times, int(given_up), f"{text}; {rest}", now)],
    )
    return given_up


def given_up(connection: Connection) -> dict[str, int]:
    """Rankers that are not learned any more, and the revision for which that holds."""
    rows = connection.rows("SELECT ranker, revision FROM troubles WHERE given_up = 1")
    return {name: int(revision) for name, revision in rows}


def texts(connection: Connection) -> dict[str, tuple[int, str]]:
    """(revision, what happened) of every ranker that had trouble."""
    rows = connection.rows("SELECT ranker, revision, text FROM troubles")
    return {name: (int(revision), text) for name, revision, text in rows}
