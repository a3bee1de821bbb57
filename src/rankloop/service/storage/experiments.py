"""Experiments and guardrails in the store. Functions of a connection inside a transaction.

A running experiment is about one thing: the ranker's lists as they were when it began. Whatever makes them others
(exposure, displacement, a version promoted, a rollback, a reset) ends it; `settle` sees to that, and that a guardrail
runs where one is wanted.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from rankloop.service.storage import admin, log, notices
from rankloop.service.storage.database import Connection, Row
from rankloop.wire.experiments import Evidence, ExperimentRequest, Notification, Verdict

Kind = Literal["experiment", "guardrail"]

State = dict[str, list[Any]]


class Seen(NamedTuple):
    """A mixed list whose feedback is in."""

    seq: int
    credit: list[float]  # by slot: 1 the ranker put it there, -1 the other did, 0 nobody; or the difference in odds
    values: list[float]  # clicks, grades or rewards by slot, from the top; may be shorter
    when: float


class Later(msgspec.Struct):
    """A watch that began after number * FRESH lists."""

    number: int
    state: State


class Tally(msgspec.Struct):
    """How an experiment stands."""

    lists: int = 0
    wins: int = 0
    losses: int = 0
    whole: State = {}  # a ConfidenceSequence over all lists
    later: list[Later] = []  # the same from later on; of guardrails only, the newest last
    verdict: Verdict = "undecided"
    evidence: Evidence | None = None
    weight: float = 0.0  # lists, those long ago counting less: for the rate
    last: float = 0.0
    scale: float | None = None  # of rewards; None: it is judged by clicks


_decode_terms = msgspec.json.Decoder(ExperimentRequest).decode
_decode_tally = msgspec.json.Decoder(Tally).decode
_decode_floats = msgspec.json.Decoder(list[float]).decode


class Trial(NamedTuple):
    """An experiment's row."""

    ranker: str
    id: int
    kind: Kind
    terms: ExperimentRequest
    subject: bytes
    state: str
    reason: str | None
    started: float
    ended: float | None
    next_seq: int
    tally: Tally


_SELECT = "SELECT ranker, id, kind, terms, subject, state, reason, started, ended, next_seq, tally FROM experiments"


def _trial(row: Row) -> Trial:
    ranker, number, kind, terms, subject, state, reason, started, ended, seq, tally = row
    return Trial(
        ranker,
        int(number),
        kind,
        _decode_terms(terms),
        bytes(subject),
        state,
        reason,
        started,
        ended,
        int(seq),
        _decode_tally(tally),
    )


def trials(connection: Connection, ranker: str, limit: int = 100) -> list[Trial]:
    """The experiments and guardrails of a ranker, the newest first."""
    rows = connection.rows(f"{_SELECT} WHERE ranker = ? ORDER BY id DESC LIMIT {limit}", ranker)
    return [_trial(row) for row in rows]


def trial(connection: Connection, ranker: str, number: int) -> Trial | None:
    """One of them."""
    row = connection.row(f"{_SELECT} WHERE ranker = ? AND id = ?", ranker, number)
    return None if row is None else _trial(row)


def running(connection: Connection, ranker: str) -> list[Trial]:
    """Those that go on: at most a guardrail and an experiment."""
    rows = connection.rows(f"{_SELECT} WHERE ranker = ? AND state = 'running' ORDER BY id", ranker)
    return [_trial(row) for row in rows]


def lagging(connection: Connection) -> list[tuple[str, int]]:
    """(ranker, number) of those that go on and have outcomes to count."""
    rows = connection.rows(
        "SELECT e.ranker, e.id FROM experiments e JOIN heads h ON h.ranker = e.ranker "
        "WHERE e.state = 'running' AND e.next_seq < h.next_seq ORDER BY e.ranker, e.id"
    )
    return [(name, int(number)) for name, number in rows]


def demotions(connection: Connection) -> dict[str, Evidence]:
    """Why rankers are in shadow: the evidence of those whose last guardrail has demoted them."""
    rows = connection.rows(
        "SELECT e.ranker, e.tally FROM experiments e WHERE e.state = 'demoted' AND e.id = "
        "(SELECT MAX(l.id) FROM experiments l WHERE l.ranker = e.ranker AND l.kind = 'guardrail')"
    )
    found = {name: _decode_tally(tally).evidence for name, tally in rows}
    return {name: evidence for name, evidence in found.items() if evidence is not None}


# -- beginning and ending ------------------------------------------------------------------------------------------


def subject(row: admin.Ranker) -> bytes:
    """What of a ranker is tried."""
    return msgspec.json.encode([row.spec.exposure, row.spec.displacement, row.serving, row.generation])


def guard_terms(row: admin.Ranker) -> ExperimentRequest | None:
    """What the guardrail of a ranker is to be; None if it needs none."""
    wanted, exposure = row.spec.guardrail, row.spec.exposure
    if wanted is None or exposure == "shadow":
        return None
    return ExperimentRequest(share=wanted.share, alpha=wanted.alpha, exposure=exposure)


def begin(
    connection: Connection,
    row: admin.Ranker,
    kind: Kind,
    terms: ExperimentRequest,
    now: float,
    scale: float | None = None,
) -> int:
    """Begin one; its number. The caller has locked the ranker's row. With a `scale` it is judged by reward."""
    found = connection.row("SELECT COALESCE(MAX(id), 0) + 1 FROM experiments WHERE ranker = ?", row.name)
    head = connection.row("SELECT next_seq FROM heads WHERE ranker = ?", row.name)
    assert found is not None
    assert head is not None
    version = terms.against if isinstance(terms.against, int) else None
    encode = msgspec.json.encode
    new = (
        row.name,
        int(found[0]),
        kind,
        encode(terms),
        version,
        subject(row),
        "running",
        now,
        head[0],
        encode(Tally(scale=scale)),
    )
    columns = "ranker, id, kind, terms, version, subject, state, started, next_seq, tally"
    connection.insert("experiments", columns, [new])
    admin.touch(connection, row.name)
    return int(found[0])


def end(connection: Connection, ranker: str, number: int, reason: str, now: float, state: str = "stopped") -> bool:
    """End one; False if it has ended before."""
    sql = "UPDATE experiments SET state = ?, reason = ?, ended = ? WHERE ranker = ? AND id = ? AND state = 'running'"
    if connection.run(sql, state, reason, now, ranker, number) == 0:
        return False
    admin.touch(connection, ranker)
    return True


def unsettled(row: admin.Ranker, found: list[Trial]) -> bool:
    """Whether `settle` has something to do."""
    wanted = guard_terms(row)
    guards = [one for one in found if one.kind == "guardrail"]
    if [one.terms for one in guards] != ([] if wanted is None else [wanted]):
        return True
    return any(one.subject != subject(row) for one in found)


def settle(connection: Connection, name: str, now: float) -> bool:
    """End what is about a ranker that has changed, and begin the guardrail that it wants; whether anything was."""
    row = admin.ranker(connection, name, lock=True)
    if row is None:
        return False
    found = running(connection, name)
    if not unsettled(row, found):
        return False
    wanted = guard_terms(row)
    guarded = False
    for one in found:
        if one.subject != subject(row):
            end(connection, name, one.id, _changed(one.subject, subject(row)), now)
        elif one.kind == "guardrail" and one.terms != wanted:
            end(connection, name, one.id, "the guardrail was changed", now)
        else:
            guarded = guarded or one.kind == "guardrail"
    if wanted is not None and not guarded:
        begin(connection, row, "guardrail", wanted, now)
    return True


def _changed(before: bytes, after: bytes) -> str:
    names = ("exposure", "displacement", "the version served", "what was learned (rollback or reset)")
    pairs: list[tuple[str, Any, Any]] = list(
        zip(names, msgspec.json.decode(before), msgspec.json.decode(after), strict=True)
    )
    name, old, new = next(pair for pair in pairs if pair[1] != pair[2])
    told = f" from {old} to {new}" if name in names[:2] else ""
    return f"the ranker has changed: {name}{told}"


# -- counting ------------------------------------------------------------------------------------------------------


def seen_from(
    connection: Connection, ranker: str, number: int, seq: int, until: int, limit: int, scale: float | None = None
) -> list[Seen]:
    """The lists of an experiment among outcomes seq … until-1, in order. With a `scale`, their values are rewards, cut
    at 1."""
    found: list[Seen] = []
    while len(found) < limit:
        rows = log.next_outcomes(connection, "feedback, created, rewards", ranker, seq, limit)
        lists = log.by_id(connection, "experiment, credit", [row[1] for row in rows])
        for at, own, clicks, when, rewards in rows:
            experiment, credit = lists.get(own, (None, None))
            if experiment == number and at < until and len(found) < limit:
                if scale is None:
                    values = _decode_floats(clicks)
                else:
                    values = [min(one / scale, 1.0) for one in _decode_floats(rewards or b"[]")]
                found.append(Seen(int(at), _decode_floats(credit), values, when))
        if len(rows) < limit or rows[-1][0] >= until - 1:
            break
        seq = int(rows[-1][0]) + 1
    return found


def save_tally(connection: Connection, before: Trial, tally: Tally, seq: int) -> bool:
    """Put a tally in the place of the one it was counted on from; False if that is no longer there, or it has ended."""
    unchanged = "ranker = ? AND id = ? AND state = 'running' AND next_seq = ?"
    sql = f"UPDATE experiments SET tally = ?, next_seq = ? WHERE {unchanged}"
    changed = connection.run(sql, msgspec.json.encode(tally), seq, before.ranker, before.id, before.next_seq)
    return changed == 1


def demote(connection: Connection, before: Trial, tally: Tally, seq: int, now: float) -> bool:
    """Put the ranker into shadow because of its guardrail; False if that has ended before. All or nothing, and once."""
    row = admin.ranker(connection, before.ranker, lock=True)
    if row is None or not save_tally(connection, before, tally, seq):
        return False
    end(connection, row.name, before.id, "users prefer the base order", now, "demoted")
    key = f"{row.name}/{int(row.created * 1000)}/{before.id}"
    told = Notification(key, row.name, "demoted", row.spec.exposure, "shadow", now, tally.evidence)
    notices.add(connection, key, row.name, msgspec.json.encode(told), now)
    admin.change_spec(connection, row.name, msgspec.structs.replace(row.spec, exposure="shadow"))
    settle(connection, row.name, now)
    return True
