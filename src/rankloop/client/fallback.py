"""What `rank` returns while the service does not answer: the baseline ranking, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import UNSET

from rankloop.client.exchange import ServiceError
from rankloop.wire.basics import ItemId
from rankloop.wire.calls import RankAnswer, RankColumns, RankedItem, RankRequest

BREAK_AFTER = 5  # calls that failed in a row
BREAK_SECONDS = 1.0  # then one call per so many seconds is sent, until one succeeds
TRANSIENT = (408, 425, 429)  # refusals of the moment; every other 4xx is an error of the caller


class Breaker:
    """Skips calls after several have failed in a row, so that a frozen service does not delay every page."""

    def __init__(self) -> None:
        self._failures, self._next_try, self._cause = 0, 0.0, ""

    def skipped(self, now: float) -> str | None:
        """The reason for not sending a call at this time, or None: then the caller sends it."""
        if self._failures < BREAK_AFTER:
            return None
        if now < self._next_try:
            return f"skipped after {self._cause}"
        self._next_try = now + BREAK_SECONDS  # this call tries, the others wait for its result
        return None

    def failed(self, cause: str, now: float) -> None:
        """Count a call that got no usable answer."""
        self._failures, self._cause, self._next_try = self._failures + 1, cause, now + BREAK_SECONDS

    def answered(self) -> None:
        """The service answers: send every call."""
        self._failures = 0


def cause(error: ServiceError) -> str | None:
    """The reason for a fallback, or None for an error that only the caller can fix."""
    if error.status == 0:
        return error.error
    if error.error == "strange-answer":
        return "invalid answer"
    return f"service error {error.status}" if error.status >= 500 or error.status in TRANSIENT else None


def baseline(name: str, request: RankRequest | RankColumns, reason: str, fallback: bool = True) -> RankAnswer:
    """The candidates of a request in the given order, under the rules of the request except its quotas."""
    ids = request.ids if isinstance(request, RankColumns) else [one.id for one in request.candidates]
    order = _ordered(ids, request.k, request.pinned, request.excluded)
    items = [RankedItem(item, position, None) for position, item in enumerate(order, 1)]
    token = None if request.token else UNSET
    return RankAnswer(None, name, "", "shadow", fallback, items, reason, request.request_id, token=token)


def _ordered(ids: list[ItemId], k: int | None, pinned: Mapping[str, int], excluded: Iterable[ItemId]) -> list[ItemId]:
    hidden = set(map(str, excluded))
    free = {str(item): item for item in ids if str(item) not in hidden}
    size = min(k or len(free), len(free))
    at, below = {}, size
    # As the service does: in a ranking that is too short, pins move up to its end.
    for item, position in sorted(pinned.items(), key=lambda pin: -pin[1]):
        if item in free and position <= (k or position) and below > 0:
            below = min(position, below) - 1
            at[below] = free.pop(item)
    rest: Iterator[ItemId] = iter(free.values())
    return [at[place] if place in at else next(rest) for place in range(size)]
