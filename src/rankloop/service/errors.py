"""The service's errors, each with the code and the status of its HTTP response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rankloop.core.errors import InvalidInput, RankloopError, UnknownName


class ServiceError(RankloopError):
    """An error with a code for programs and an HTTP status."""

    code: ClassVar[str]
    status: ClassVar[int]


class NotAuthenticated(ServiceError):
    """No key, or an unknown one."""

    code, status = "not-authenticated", 401


class BadToken(NotAuthenticated):
    """A token of a ranking that was made elsewhere, altered, or has expired."""

    code = "bad-token"


class NotAllowed(ServiceError):
    """A key without the scope that is needed."""

    code, status = "not-allowed", 403


class ForeignOrigin(ServiceError):
    """A page of an origin that is not allowed."""

    code, status = "foreign-origin", 403


class UnknownRanker(ServiceError, UnknownName):
    """No ranker has that name. The message lists the known ones; `plain` is for callers who may not see them."""

    code, status = "unknown", 404
    plain = "there is no ranker of that name"


class UnknownCatalog(UnknownRanker):
    """No catalog has that name. The message lists the known ones; `plain` is for callers who may not see them."""

    plain = "there is no catalog of that name"


class NoSuchCatalog(UnknownCatalog):
    """A spec names a catalog that does not exist."""

    code, status = "unknown-catalog", 422


class UnknownEntry(UnknownRanker):
    """The catalog has no such item or user."""


class UnknownEvent(ServiceError):
    """No ranking was made for the request that another system's event names."""

    code, status = "unknown", 404


class UnknownVersion(UnknownRanker):
    """The ranker has no version of that number."""


class Conflict(ServiceError):
    """The request contradicts the present state."""

    code, status = "conflict", 409


class CatalogInUse(Conflict):
    """A catalog that rankers name is to be deleted, and the caller does not force it. `plain` is for callers who may
    not see the names of the rankers."""

    code = "in-use"
    plain = "the catalog is in use: rankers name it in their specs; change those first, or delete it with force=true"


class NotLearned(Conflict):
    """Acknowledged outcomes are not in the version that would be kept, and the caller does not force the action."""

    code = "not-learned"


class KeyReused(Conflict):
    """The idempotency key was used for another request."""

    code = "key-reused"


class Demoted(Conflict):
    """The guardrail has set the ranker to shadow, and the caller does not acknowledge it."""

    code = "demoted"


class Changed(ServiceError):
    """The ranker is not in the state that `If-Match` names."""

    code, status = "changed", 412


class Malformed(ServiceError, InvalidInput):
    """A body that cannot be read."""

    code, status = "malformed", 400


class UnknownEncoding(ServiceError):
    """An unknown content encoding."""

    code, status = "unknown-encoding", 415


class OverLimit(ServiceError):
    """A request is larger than a limit; the message names it."""

    code, status = "over-limit", 413


class TooMany(ServiceError):
    """More requests than a limit allows; `headers` tell when to retry."""

    code, status = "too-many", 429

    def __init__(self, message: str, seconds: int | None = None) -> None:
        super().__init__(message)
        self.headers = {} if seconds is None else {"Retry-After": str(seconds)}


class UnknownFeature(ServiceError, InvalidInput):
    """A feature that the ranker does not know, or a missing one."""

    code, status = "unknown-feature", 422


class Rejected(ServiceError, InvalidInput):
    """A feedback event that was sent alone breaks a rule."""

    code, status = "rejected", 422

    @classmethod
    def of(cls, event_id: str | None, reason: str | None, kept: Sequence[str]) -> Rejected:
        """With the reason, and the fields that count."""
        counts = f" Kept of it: {', '.join(kept)}." if kept else ""
        return cls(
            f"event {event_id!r} was rejected: {reason}.{counts} Correct it and send it again with the same event_id"
        )


class StoreUnavailable(ServiceError):
    """The store cannot be reached or cannot write; nothing has happened."""

    code, status = "store-unavailable", 503


class StoreSlow(ServiceError, TimeoutError):
    """The store has not answered in time; the change may still happen."""

    code, status = "store-slow", 504


class TooSlow(ServiceError):
    """A learner did not answer in time."""

    code, status = "busy", 503


class Busy(ServiceError):
    """Too many blocking calls wait; nothing has happened."""

    code, status = "busy", 503


class NotARanking(RankloopError):
    """A learner returned something that is not a ranking."""
