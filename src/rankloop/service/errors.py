"""The service's errors, each with the code and the status of its HTTP response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rankloop.core.errors import InvalidInput, RankloopError, UnknownName


class ServiceError(RankloopError):
    """An error with a code for programs and an HTTP status, both inherited unless a class gives its own."""

    code: ClassVar[str]
    status: ClassVar[int]

    def __init_subclass__(cls, code: str | None = None, status: int | None = None) -> None:
        super().__init_subclass__()
        cls.code, cls.status = code or cls.code, status or cls.status


class NotAuthenticated(ServiceError, code="not-authenticated", status=401):
    """No key, or an unknown one."""


class BadToken(NotAuthenticated, code="bad-token"):
    """A token of a ranking that was made elsewhere, altered, or has expired."""


class NotAllowed(ServiceError, code="not-allowed", status=403):
    """A key without the scope that is needed."""


class ForeignOrigin(ServiceError, code="foreign-origin", status=403):
    """A page of an origin that is not allowed."""


class UnknownRanker(ServiceError, UnknownName, code="unknown", status=404):
    """No ranker has that name. The message lists the known ones; `plain` is for callers who may not see them."""

    plain = "there is no ranker of that name"


class UnknownCatalog(UnknownRanker):
    """No catalog has that name. The message lists the known ones; `plain` is for callers who may not see them."""

    plain = "there is no catalog of that name"


class NoSuchCatalog(UnknownCatalog, code="unknown-catalog", status=422):
    """A spec names a catalog that does not exist."""


class UnknownEntry(UnknownRanker):
    """The catalog has no such item or user."""


class UnknownEvent(ServiceError, code="unknown", status=404):
    """No ranking was made for the request that another system's event names."""


class UnknownVersion(UnknownRanker):
    """The ranker has no version of that number."""


class Conflict(ServiceError, code="conflict", status=409):
    """The request contradicts the present state."""


class CatalogInUse(Conflict, code="in-use"):
    """A catalog that rankers name is to be deleted, and the caller does not force it. `plain` is for callers who may
    not see the names of the rankers."""

    plain = "the catalog is in use: rankers name it in their specs; change those first, or delete it with force=true"


class NotLearned(Conflict, code="not-learned"):
    """Acknowledged outcomes are not in the version that would be kept, and the caller does not force the action."""


class KeyReused(Conflict, code="key-reused"):
    """The idempotency key was used for another request."""


class Demoted(Conflict, code="demoted"):
    """The guardrail has set the ranker to shadow, and the caller does not acknowledge it."""


class Changed(ServiceError, code="changed", status=412):
    """The ranker is not in the state that `If-Match` names."""


class Malformed(ServiceError, InvalidInput, code="malformed", status=400):
    """A body that cannot be read."""


class UnknownEncoding(ServiceError, code="unknown-encoding", status=415):
    """An unknown content encoding."""


class OverLimit(ServiceError, code="over-limit", status=413):
    """A request is larger than a limit; the message names it."""


class TooMany(ServiceError, code="too-many", status=429):
    """More requests than a limit allows; `headers` tell when to retry."""

    def __init__(self, message: str, seconds: int | None = None) -> None:
        super().__init__(message)
        self.headers = {} if seconds is None else {"Retry-After": str(seconds)}


class UnknownFeature(ServiceError, InvalidInput, code="unknown-feature", status=422):
    """A feature that the ranker does not know, or a missing one."""


class Rejected(ServiceError, InvalidInput, code="rejected", status=422):
    """A feedback event that was sent alone breaks a rule."""

    @classmethod
    def of(cls, event_id: str | None, reason: str | None, kept: Sequence[str]) -> Rejected:
        """With the reason, and the fields that count."""
        counts = f" Kept of it: {', '.join(kept)}." if kept else ""
        return cls(
            f"event {event_id!r} was rejected: {reason}.{counts} Correct it and send it again with the same event_id"
        )


class StoreUnavailable(ServiceError, code="store-unavailable", status=503):
    """The store cannot be reached or cannot write; nothing has happened."""


class StoreSlow(ServiceError, TimeoutError, code="store-slow", status=504):
    """The store has not answered in time; the change may still happen."""


class TooSlow(ServiceError, code="busy", status=503):
    """A learner did not answer in time."""


class Busy(ServiceError, code="busy", status=503):
    """Too many blocking calls wait; nothing has happened."""


class NotARanking(RankloopError):
    """A learner returned something that is not a ranking."""
