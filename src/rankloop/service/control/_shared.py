"""What operations share: finding a ranker, and carrying out an operator action exactly once.

An operator action is one transaction: the change, its audit entry and its idempotency key. The writer repeats a
transaction whose COMMIT was not acknowledged, and clients repeat requests that got no answer. Either finds the key and
gets the stored result instead of a second change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec

from rankloop.core.errors import RankloopError
from rankloop.service.errors import Conflict, KeyReused, UnknownRanker
from rankloop.service.observability import tracing
from rankloop.service.serving.engine import Engine
from rankloop.service.storage import admin, audit
from rankloop.service.storage.database import Connection
from rankloop.service.storage.log import new_id

P = TypeVar("P")
TRIES = 5  # that a change is prepared again because the ranker has changed meanwhile
logger = logging.getLogger("rankloop")


class Done(NamedTuple):
    """What a change did."""

    result: Any  # what the answer needs of it: a plain JSON value
    audit: str | None  # one line for the audit list; None: nothing was changed


class Action:
    """One operator action, carried out at most once however often it is tried.

    Parameters
    ----------
    engine
        Where.
    name
        As the audit list has it: "rollback", "put".
    ranker
        Which ranker it is about; None: not about one.
    arguments
        JSON values. The same idempotency key with other arguments is refused.
    """

    def __init__(self, engine: Engine, name: str, ranker: str | None, *arguments: Any) -> None:
        trace = tracing.current.get()
        self._engine, self._name, self._ranker = engine, name, ranker
        self._who, self._request_id = (audit.COMMAND, "") if trace is None else (trace.key, trace.id)
        self._own = new_id()
        self._key = trace.idempotency_key if trace is not None and trace.idempotency_key else self._own
        self._digest = blake2b(msgspec.json.encode([name, ranker, *arguments]), digest_size=16).digest()

    def entry(self, text: str) -> audit.Entry:
        """The audit entry of this action."""
        return audit.Entry(self._engine.clock(), self._who, self._name, self._ranker, text, self._request_id)

    def log(self, text: str) -> None:
        """Log what has been committed."""
        logger.info("%s", text if self._ranker is None else f"ranker {self._ranker}: {text}")

    def update(self, connection: Connection, text: str) -> None:
        """Write the audit entry of an action of several transactions, or replace its text: once in each of them."""
        audit.update(connection, self._own, self.entry(text))

    def earlier(self) -> Done | None:
        """What an earlier try did; None if none was committed."""
        return self._engine.database.read(self._earlier)

    def commit(self, change: Callable[[Connection], Done | None]) -> Done | None:
        """Run `change` in a transaction and record it there. None if it returns None: the action is not carried out."""

        def work(connection: Connection) -> Done | None:
            if (earlier := self._earlier(connection)) is not None:
                return earlier
            done = change(connection)
            if done is not None:
                new = audit.Result(self._digest, msgspec.json.encode(done.result))
                audit.add_result(connection, self._who, self._key, new, self._engine.clock())
                if done.audit is not None:
                    audit.add(connection, [self.entry(done.audit)])
            return done

        done = self._engine.writer.do(work)
        if done is not None and done.audit is not None:
            self.log(done.audit)
        return done

    def _earlier(self, connection: Connection) -> Done | None:
        found = audit.result(connection, self._who, self._key)
        if found is None:
            return None
        if found.request != self._digest:
            raise KeyReused(
                f"Idempotency-Key {self._key!r} was used for another request, so nothing was done; give every action a "
                "key of its own, and send the same key only to repeat the same request"
            )
        return Done(msgspec.json.decode(found.result), None)


def changed(
    action: Action,
    engine: Engine,
    name: str,
    look: Callable[[admin.Ranker | None], P],
    change: Callable[[Connection, P], Done | None],
) -> Any:
    """The result of `change` for the ranker that `look` has seen.

    `look` runs outside any transaction: it refuses what is not possible, and may take time with a learner, which in a
    transaction would block all writes. `change` writes, and only if the ranker is still the one that was looked at; if
    not, or if it returns None, both are repeated.
    """
    for _ in range(TRIES):
        if (earlier := action.earlier()) is not None:
            return earlier.result
        row = engine.database.read(lambda connection: admin.ranker(connection, name))
        try:
            seen = look(row)
        except RankloopError:
            if (earlier := action.earlier()) is not None:  # a request with the same key was committed meanwhile
                return earlier.result
            raise

        def write(connection: Connection, row: admin.Ranker | None = row, seen: P = seen) -> Done | None:
            now = admin.ranker(connection, name, lock=True)
            if (now and (now.created, now.revision)) != (row and (row.created, row.revision)):
                return None
            return change(connection, seen)

        done = action.commit(write)
        if done is not None:
            return done.result
    raise Conflict(f"ranker {name!r} was changed by others {TRIES} times in a row, nothing was done; try again")


def required(engine: Engine, row: admin.Ranker | None, name: str) -> admin.Ranker:
    """The row, or an error that says which rankers there are."""
    if row is None:
        raise unknown(engine, name)
    return row


def unknown(engine: Engine, name: str) -> UnknownRanker:
    """The error for a ranker that is not there."""
    error = UnknownRanker.among("ranker", name, sorted(engine.rankers) or ["none yet; make one with PUT"])
    assert isinstance(error, UnknownRanker)
    return error
