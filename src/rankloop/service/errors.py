"""What callers are refused with, in one place: each error with the word and the status that HTTP answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rankloop.core.errors import InvalidInput, RankloopError, UnknownName


class Told:
    """An error that has a word for programs and a status of its own."""

    word: ClassVar[str]
    status: ClassVar[int]


class NotAuthenticated(Told, RankloopError):
    """No key, or one that is not known."""

    word, status = "not-authenticated", 401


class BadToken(NotAuthenticated):
    """A token of a list that was not made here, was altered, or has ended."""

    word = "bad-token"


class NotAllowed(Told, RankloopError):
    """A key without the scope that is needed."""

    word, status = "not-allowed", 403


class ForeignOrigin(Told, RankloopError):
    """A page that was not let in."""

    word, status = "foreign-origin", 403


class UnknownRanker(Told, UnknownName):
    """No ranker has that name. The message lists the ones there are; `plain` is for those who may not know them."""

    word, status = "unknown", 404
    plain = "there is no ranker of that name"


class UnknownCatalog(UnknownRanker):
    """No catalog has that name. The message lists the ones there are; `plain` is for those who may not know them."""

    plain = "there is no catalog of that name"


class NoSuchCatalog(UnknownCatalog):
    """A spec names a catalog that does not exist."""

    word, status = "unknown-catalog", 422


class UnknownEntry(UnknownRanker):
    """The catalog has no such item or user."""


class UnknownEvent(Told, RankloopError):
    """No list was made for the request that another system's event names."""

    word, status = "unknown", 404


class UnknownVersion(UnknownRanker):
    """The ranker has no version of that number."""


class Conflict(Told, RankloopError):
    """What is asked for contradicts what is there."""

    word, status = "conflict", 409


class CatalogInUse(Conflict):
    """A catalog that rankers name is to be deleted, and the caller does not force it. `plain` is for callers who may
    not see the names of the rankers."""

    word = "in-use"
    plain = "the catalog is in use: rankers name it in their specs; change those first, or delete it with force=true"


class NotLearned(Conflict):
    """Acknowledged outcomes are not in the version that would be kept, and the caller does not force the action."""

    word = "not-learned"


class KeyReused(Conflict):
    """The idempotency key was used for another request."""

    word = "key-reused"


class Demoted(Conflict):
    """The guardrail has put the ranker into shadow, and the caller does not say that he knows."""

    word = "demoted"


class Changed(Told, RankloopError):
    """The ranker is not in the state that the change is meant for (`If-Match`)."""

    word, status = "changed", 412


class Malformed(Told, InvalidInput):
    """A body that cannot be read."""

    word, status = "malformed", 400


class UnknownEncoding(Told, RankloopError):
    """A body packed in a way that is not known here."""

    word, status = "unknown-encoding", 415


class OverLimit(Told, RankloopError):
    """A request is larger than a limit; the message says which."""

    word, status = "over-limit", 413


class TooMany(Told, RankloopError):
    """More requests than a limit lets through; `headers` say when to come again."""

    word, status = "too-many", 429

    def __init__(self, message: str, seconds: int | None = None) -> None:
        super().__init__(message)
        self.headers = {} if seconds is None else {"Retry-After": str(seconds)}


class UnknownFeature(Told, InvalidInput):
    """A feature that the ranker does not know, or one that it needs and did not get."""

    word, status = "unknown-feature", 422


class Rejected(Told, InvalidInput):
    """A feedback event that was sent alone breaks a rule."""

    word, status = "rejected", 422

    @classmethod
    def of(cls, event_id: str | None, reason: str | None, kept: Sequence[str]) -> Rejected:
        """With the reason, and the fields that count."""
        counts = f" Kept of it: {', '.join(kept)}." if kept else ""
        return cls(
            f"event {event_id!r} was rejected: {reason}.{counts} Correct it and send it again with the same event_id"
        )


class StoreUnavailable(Told, RankloopError):
    """The store cannot be reached or cannot write now; what was asked for has not happened."""

    word, status = "store-unavailable", 503


class StoreSlow(Told, RankloopError, TimeoutError):
    """The store has begun with what was asked for and has not answered in time; it may still happen."""

    word, status = "store-slow", 504


class TooSlow(Told, RankloopError):
    """A learner did not answer in time."""

    word, status = "busy", 503


class Busy(Told, RankloopError):
    """More blocking calls wait than a process takes; nothing of this one has happened."""

    word, status = "busy", 503


class NotARanking(RankloopError):
    """A learner answered with something that is not a ranking."""
