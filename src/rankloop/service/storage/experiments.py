"""Experiments, guardrails and the webhook messages about them. Functions of a connection inside a transaction.

A running experiment tests one configuration of a ranker. A change of its exposure, displacement, promoted version or
state ends the experiment; `reconcile` does that, and starts the guardrail that the spec asks for.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from rankloop.service.storage import outcomes, rankers
from rankloop.service.storage.database import Connection, Row
from rankloop.service.storage.impressions import impressions_by_id
from rankloop.service.storage.rankers import Ranker
from rankloop.wire.experiments import Evidence, ExperimentRequest, Notification, Verdict

Kind = Literal["experiment", "guardrail"]

State = dict[str, list[Any]]


class InterleavedOutcome(NamedTuple):
    """The outcome of an interleaved ranking."""

    seq: int
    credit: list[float]  # by position: 1 the ranker's item, -1 the other's, 0 neither; or the difference in odds
    values: list[float]  # clicks, grades or rewards by position; may be shorter
    when: float


class Later(msgspec.Struct):
    """A sequence that began after number * FRESH impressions."""

    number: int
    state: State


class Tally(msgspec.Struct):
    """The result of an experiment so far."""

    lists: int = 0
    wins: int = 0
    losses: int = 0
    whole: State = {}  # a ConfidenceSequence over all impressions
    later: list[Later] = []  # sequences that began later; of guardrails only, the newest last
    verdict: Verdict = "undecided"
    evidence: Evidence | None = None
    weight: float = 0.0  # discounted number of impressions, for the rate
    last: float = 0.0
    scale: float | None = None  # of rewards; None: it is judged by clicks


_decode_terms = msgspec.json.Decoder(ExperimentRequest).decode
_decode_tally = msgspec.json.Decoder(Tally).decode
_decode_floats = msgspec.json.Decoder(list[float]).decode


class Experiment(NamedTuple):
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


def _experiment(row: Row) -> Experiment:
    ranker, number, kind, terms, subject, state, reason, started, ended, seq, tally = row
    return Experiment(
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


def list_experiments(connection: Connection, ranker: str, limit: int = 100) -> list[Experiment]:
    """Return the experiments and guardrails of a ranker, the newest first."""
    rows = connection.rows(f"{_SELECT} WHERE ranker = ? ORDER BY id DESC LIMIT {limit}", ranker)
    return [_experiment(row) for row in rows]


def get_experiment(connection: Connection, ranker: str, number: int) -> Experiment | None:
    """Return one experiment."""
    row = connection.row(f"{_SELECT} WHERE ranker = ? AND id = ?", ranker, number)
    return None if row is None else _experiment(row)


def running(connection: Connection, ranker: str) -> list[Experiment]:
    """Return the running ones: at most a guardrail and an experiment."""
    rows = connection.rows(f"{_SELECT} WHERE ranker = ? AND state = 'running' ORDER BY id", ranker)
    return [_experiment(row) for row in rows]


def behind(connection: Connection) -> list[tuple[str, int]]:
    """Return (ranker, number) of running experiments that have outcomes to count."""
    rows = connection.rows(
        "SELECT e.ranker, e.id FROM experiments e JOIN log_offsets h ON h.ranker = e.ranker "
        "WHERE e.state = 'running' AND e.next_seq < h.next_seq ORDER BY e.ranker, e.id"
    )
    return [(name, int(number)) for name, number in rows]


def demotions(connection: Connection) -> dict[str, Evidence]:
    """Return the evidence by which the last guardrail of rankers has demoted them."""
    rows = connection.rows(
        "SELECT e.ranker, e.tally FROM experiments e WHERE e.state = 'demoted' AND e.id = "
        "(SELECT MAX(l.id) FROM experiments l WHERE l.ranker = e.ranker AND l.kind = 'guardrail')"
    )
    found = {name: _decode_tally(tally).evidence for name, tally in rows}
    return {name: evidence for name, evidence in found.items() if evidence is not None}


# -- starting and ending -------------------------------------------------------------------------------------------


def subject(row: Ranker) -> bytes:
    """Return the configuration of a ranker that an experiment tests."""
    return msgspec.json.encode([row.spec.exposure, row.spec.displacement, row.serving, row.generation])


def guardrail_request(row: Ranker) -> ExperimentRequest | None:
    """Return the guardrail that a ranker needs, if any."""
    wanted, exposure = row.spec.guardrail, row.spec.exposure
    if wanted is None or exposure == "shadow":
        return None
    return ExperimentRequest(share=wanted.share, alpha=wanted.alpha, exposure=exposure)


def start(
    connection: Connection,
    row: Ranker,
    kind: Kind,
    terms: ExperimentRequest,
    now: float,
    scale: float | None = None,
) -> int:
    """Start an experiment of a ranker whose row is locked; return its number. With a `scale` it compares rewards."""
    found = connection.row("SELECT COALESCE(MAX(id), 0) + 1 FROM experiments WHERE ranker = ?", row.name)
    next_seq = outcomes.log_offset(connection, row.name)
    assert found is not None
    assert next_seq is not None
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
        next_seq,
        encode(Tally(scale=scale)),
    )
    columns = "ranker, id, kind, terms, version, subject, state, started, next_seq, tally"
    connection.insert("experiments", columns, [new])
    rankers.touch(connection, row.name)
    return int(found[0])


def end(connection: Connection, ranker: str, number: int, reason: str, now: float, state: str = "stopped") -> bool:
    """End an experiment; False if it had ended."""
    sql = "UPDATE experiments SET state = ?, reason = ?, ended = ? WHERE ranker = ? AND id = ? AND state = 'running'"
    if connection.run(sql, state, reason, now, ranker, number) == 0:
        return False
    rankers.touch(connection, ranker)
    return True


def needs_reconcile(row: Ranker, found: list[Experiment]) -> bool:
    """Return whether `reconcile` has something to do."""
    wanted = guardrail_request(row)
    guards = [one for one in found if one.kind == "guardrail"]
    if [one.terms for one in guards] != ([] if wanted is None else [wanted]):
        return True
    return any(one.subject != subject(row) for one in found)


def reconcile(connection: Connection, name: str, now: float) -> bool:
    """End experiments of a configuration that has changed, and start the guardrail of the spec; False if none was."""
    row = rankers.get_ranker(connection, name, lock=True)
    if row is None:
        return False
    found = running(connection, name)
    if not needs_reconcile(row, found):
        return False
    wanted = guardrail_request(row)
    guarded = False
    for one in found:
        if one.subject != subject(row):
            end(connection, name, one.id, _changed(one.subject, subject(row)), now)
        elif one.kind == "guardrail" and one.terms != wanted:
            end(connection, name, one.id, "the guardrail was changed", now)
        else:
            guarded = guarded or one.kind == "guardrail"
    if wanted is not None and not guarded:
        start(connection, row, "guardrail", wanted, now)
    return True


def _changed(before: bytes, after: bytes) -> str:
    names = ("exposure", "displacement", "the version served", "the learned state (rollback or reset)")
    pairs: list[tuple[str, Any, Any]] = list(
        zip(names, msgspec.json.decode(before), msgspec.json.decode(after), strict=True)
    )
    name, old, new = next(pair for pair in pairs if pair[1] != pair[2])
    values = f" from {old} to {new}" if name in names[:2] else ""
    return f"the ranker has changed: {name}{values}"


# -- counting ------------------------------------------------------------------------------------------------------


def interleaved_outcomes(
    connection: Connection, ranker: str, number: int, seq: int, until: int, limit: int, scale: float | None = None
) -> list[InterleavedOutcome]:
    """Return the interleaved rankings of an experiment among outcomes seq … until-1, in order. With a `scale`, their
    values are rewards, clipped at 1."""
    found: list[InterleavedOutcome] = []
    while len(found) < limit:
        rows = outcomes.next_outcomes(connection, "feedback, created, rewards", ranker, seq, limit)
        impressions = impressions_by_id(connection, "experiment, credit", [row[1] for row in rows])
        for at, own, clicks, when, rewards in rows:
            experiment, credit = impressions.get(own, (None, None))
            if experiment == number and at < until and len(found) < limit:
                if scale is None:
                    values = _decode_floats(clicks)
                else:
                    values = [min(one / scale, 1.0) for one in _decode_floats(rewards or b"[]")]
                found.append(InterleavedOutcome(int(at), _decode_floats(credit), values, when))
        if len(rows) < limit or rows[-1][0] >= until - 1:
            break
        seq = int(rows[-1][0]) + 1
    return found


def save_tally(connection: Connection, before: Experiment, tally: Tally, seq: int) -> bool:
    """Replace the tally that this one continues; False if that was replaced, or the experiment has ended."""
    unchanged = "ranker = ? AND id = ? AND state = 'running' AND next_seq = ?"
    sql = f"UPDATE experiments SET tally = ?, next_seq = ? WHERE {unchanged}"
    changed = connection.run(sql, msgspec.json.encode(tally), seq, before.ranker, before.id, before.next_seq)
    return changed == 1


def demote(connection: Connection, before: Experiment, tally: Tally, seq: int, now: float) -> bool:
    """Put a ranker into shadow because of its guardrail, once; False if that had ended."""
    row = rankers.get_ranker(connection, before.ranker, lock=True)
    if row is None or not save_tally(connection, before, tally, seq):
        return False
    end(connection, row.name, before.id, "users prefer the base order", now, "demoted")
    key = f"{row.name}/{int(row.created * 1000)}/{before.id}"
    message = Notification(key, row.name, "demoted", row.spec.exposure, "shadow", now, tally.evidence)
    add_message(connection, key, row.name, msgspec.json.encode(message), now)
    rankers.set_spec(connection, row.name, msgspec.structs.replace(row.spec, exposure="shadow"))
    reconcile(connection, row.name, now)
    return True


# -- webhook messages ----------------------------------------------------------------------------------------------


class WebhookMessage(NamedTuple):
    """A message that waits to be delivered."""

    id: str
    ranker: str
    body: bytes
    created: float
    attempts: int


def add_message(connection: Connection, key: str, ranker: str, body: bytes, now: float) -> None:
    """Add a message, due at once, in the transaction of the change that it reports."""
    connection.insert("webhook_outbox", "id, ranker, body, created, attempts, due", [(key, ranker, body, now, 0, now)])


def due_messages(connection: Connection, now: float, limit: int = 20) -> list[WebhookMessage]:
    """Return the messages to deliver now, the oldest first."""
    sql = (
        f"SELECT id, ranker, body, created, attempts FROM webhook_outbox WHERE due <= ? ORDER BY created LIMIT {limit}"
    )
    rows = connection.rows(sql, now)
    return [WebhookMessage(key, ranker, bytes(body), created, int(count)) for key, ranker, body, created, count in rows]


def waiting_messages(connection: Connection) -> dict[str, int]:
    """Return the number of waiting messages by ranker."""
    rows = connection.rows("SELECT ranker, COUNT(*) FROM webhook_outbox GROUP BY ranker")
    return {name: int(count) for name, count in rows}


def retry_message(connection: Connection, key: str, at: float) -> None:
    """Schedule another attempt for a message that could not be delivered."""
    connection.run("UPDATE webhook_outbox SET attempts = attempts + 1, due = ? WHERE id = ?", at, key)


def delete_message(connection: Connection, key: str) -> None:
    """Delete a message that was delivered or given up."""
    connection.run("DELETE FROM webhook_outbox WHERE id = ?", key)
