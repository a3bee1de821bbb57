"""Operator actions: each is one transaction with its audit entry and idempotency key; it may be conditional (If-Match).

The writer repeats a transaction whose COMMIT was not acknowledged, and clients repeat requests that got no answer. Both
find the key and get the stored result instead of a second change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec

from rankloop.core.errors import RankloopError
from rankloop.service.errors import Changed, Conflict, Demoted, KeyReused, UnknownRanker
from rankloop.service.observability import tracing
from rankloop.service.serving.engine import Engine
from rankloop.service.storage import audit as stored_audit
from rankloop.service.storage import rankers
from rankloop.service.storage.database import Connection
from rankloop.service.storage.ids import new_id
from rankloop.wire.experiments import Evidence
from rankloop.wire.rankers import Guardrail, Spec

P = TypeVar("P")
TRIES = 5  # of a change, if the ranker changes meanwhile
logger = logging.getLogger("rankloop")


class Done(NamedTuple):
    """The result of a change."""

    result: Any  # a plain JSON value for the answer
    audit: str | None  # one line for the audit list; None: nothing was changed


class Action:
    """An operator action, carried out at most once however often it is tried.

    Parameters
    ----------
    engine
        The process.
    name
        For the audit list: "rollback", "put".
    ranker
        The ranker concerned; None: not one ranker.
    arguments
        JSON values. The same idempotency key with other arguments is refused.
    """

    def __init__(self, engine: Engine, name: str, ranker: str | None, *arguments: Any) -> None:
        trace = tracing.current.get()
        self._engine, self._name, self._ranker = engine, name, ranker
        self._who, self._request_id = (stored_audit.COMMAND, "") if trace is None else (trace.key, trace.id)
        self._own = new_id()
        self._key = trace.idempotency_key if trace is not None and trace.idempotency_key else self._own
        self._digest = blake2b(msgspec.json.encode([name, ranker, *arguments]), digest_size=16).digest()

    def entry(self, text: str) -> stored_audit.Entry:
        """The audit entry of this action."""
        return stored_audit.Entry(self._engine.clock(), self._who, self._name, self._ranker, text, self._request_id)

    def log(self, text: str) -> None:
        """Log what has been committed."""
        logger.info("%s", text if self._ranker is None else f"ranker {self._ranker}: {text}")

    def update(self, connection: Connection, text: str) -> None:
        """Write the audit entry of an action of several transactions, or replace its text: once in each of them."""
        stored_audit.update(connection, self._own, self.entry(text))

    def earlier(self) -> Done | None:
        """The result of an earlier attempt; None if none was committed."""
        return self._engine.database.read(self._earlier)

    def commit(self, change: Callable[[Connection], Done | None]) -> Done | None:
        """Run `change` in a transaction and record it there. None if it returns None: the action is not carried out."""

        def work(connection: Connection) -> Done | None:
            if (earlier := self._earlier(connection)) is not None:
                return earlier
            done = change(connection)
            if done is not None:
                new = stored_audit.Result(self._digest, msgspec.json.encode(done.result))
                stored_audit.add_result(connection, self._who, self._key, new, self._engine.clock())
                if done.audit is not None:
                    stored_audit.add(connection, [self.entry(done.audit)])
            return done

        done = self._engine.writer.do(work)
        if done is not None and done.audit is not None:
            self.log(done.audit)
        return done

    def _earlier(self, connection: Connection) -> Done | None:
        found = stored_audit.result(connection, self._who, self._key)
        if found is None:
            return None
        if found.request != self._digest:
            raise KeyReused(
                f"Idempotency-Key {self._key!r} was used for another request, so nothing was done; give every action a "
                "key of its own, and send the same key only to repeat the same request"
            )
        return Done(msgspec.json.decode(found.result), None)


def change_ranker(
    action: Action,
    engine: Engine,
    name: str,
    check: Callable[[rankers.Ranker | None], P],
    change: Callable[[Connection, P], Done | None],
) -> Any:
    """The result of `change`, for the ranker that `check` has seen.

    `check` runs outside the transaction: it refuses what is impossible, and may wait for a learner. `change` writes,
    and only if the ranker has not changed since; otherwise, or if it returns None, both are repeated.
    """
    for _ in range(TRIES):
        if (earlier := action.earlier()) is not None:
            return earlier.result
        row = engine.database.read(lambda connection: rankers.get_ranker(connection, name))
        try:
            seen = check(row)
        except RankloopError:
            if (earlier := action.earlier()) is not None:  # a request with the same key was committed meanwhile
                return earlier.result
            raise

        def write(connection: Connection, row: rankers.Ranker | None = row, seen: P = seen) -> Done | None:
            now = rankers.get_ranker(connection, name, lock=True)
            if (now and (now.created, now.revision)) != (row and (row.created, row.revision)):
                return None
            return change(connection, seen)

        done = action.commit(write)
        if done is not None:
            return done.result
    raise Conflict(f"ranker {name!r} was changed by others {TRIES} times in a row, nothing was done; try again")


def required(engine: Engine, row: rankers.Ranker | None, name: str) -> rankers.Ranker:
    """The row, or an error that says which rankers there are."""
    if row is None:
        raise unknown(engine, name)
    return row


def unknown(engine: Engine, name: str) -> UnknownRanker:
    """The error for a ranker that is not there."""
    error = UnknownRanker.among("ranker", name, sorted(engine.rankers) or ["none yet; make one with PUT"])
    assert isinstance(error, UnknownRanker)
    return error


# -- If-Match ------------------------------------------------------------------------------------------------------


def etag(row: rankers.Ranker) -> str:
    """The revision, and a digest that tells rankers of the same name apart."""
    parts = [msgspec.to_builtins(row.spec), row.created, row.serving, row.learning, row.generation]
    return f'"{row.revision}-{blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()}"'


def matches(row: rankers.Ranker | None, name: str, if_match: str | None) -> bool:
    """Whether `If-Match` names the present state of the ranker; refuses if it names another. `*` names any.

    Weak ETags (W/), which compressing proxies make, count too: an ETag here names a revision, not bytes.
    """
    if if_match is None:
        return False
    if row is None:
        raise Changed(f"If-Match was sent, but there is no ranker {name!r}; it was deleted, or never created")
    tags = [tag.strip().removeprefix("W/") for tag in if_match.split(",")]
    if "*" in tags:
        return False
    if etag(row) in tags:
        return True
    raise Changed(
        f"ranker {name!r} has changed since the state that If-Match names; see GET /v1/audit?ranker={name}, and send "
        f"If-Match: {etag(row)} to change it as it is now"
    )


def require_acknowledged(row: rankers.Ranker, wanted: Spec, evidence: Evidence | None, acknowledged: bool) -> None:
    """Refuse to raise the exposure after the guardrail lowered it, unless the caller acknowledges that."""
    if evidence is None or wanted.exposure == "shadow" or acknowledged:
        return
    low, high = evidence.interval
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(evidence.when))
    raise Demoted(
        f"the guardrail of ranker {row.name!r} set it to shadow on {when}: users preferred the baseline ranking by "
        f"{-evidence.preference:.2f} ({-high:.2f} to {-low:.2f}) over {evidence.lists} lists. This call would set "
        f"{wanted.exposure!r} again, so nothing was changed. To do it anyway, add ?acknowledge_demotion=true, or "
        f'If-Match: {etag(row)}; to change something else, PATCH it, or send "exposure": "shadow"'
    )


def difference(before: Spec, after: Spec) -> str:
    """The changed fields of a spec in one line, with the values of short ones."""
    said = []
    for field in Spec.__struct_fields__:
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            long = isinstance(old, list | dict) or isinstance(new, list | dict)
            said.append(field if long else f"{field} {_word(old)} -> {_word(new)}")
    return ", ".join(said)


def _word(value: Any) -> str:
    if isinstance(value, Guardrail):
        return f"share {value.share:g} alpha {value.alpha:g}"
    return "off" if value is None else str(value)
