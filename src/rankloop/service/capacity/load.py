"""What is asked of a service: the input of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.service.capacity.curves import Size

STORES = ("sqlite", "postgresql")
BOUNDS: dict[str, tuple[float, float]] = {
    "requests": (0.001, 1e7),
    "candidates": (1, 10_000),
    "features": (1, 4096),
    "shown": (1, 1000),
    "clicks_per_list": (0, 1000),
    "retention_days": (0.01, 3660),
    "average": (0.001, 1),
    "headroom": (0, 0.95),
    "cores": (1, 1024),
    "rankers": (1, 1_000_000),
    "hottest": (0, 1),
    "survive": (0, 1000),
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked of a service.

    Parameters
    ----------
    requests
        Lists a second, at the busiest time.
    candidates
        Of a list.
    features
        Of a candidate.
    shown
        How many of a list are shown, and stored.
    learner
        A name that the constants know; those that come with rankloop know the usual ones.
    store
        sqlite or postgresql.
    clicks_per_list
        Events reported a list. A list with an event has an outcome, which is learned.
    retention_days
        How long lists and events are kept.
    average
        What a day's mean rate is of that of the busiest time.
    headroom
        Share of what it has that a process or a core leaves free at the busiest time.
    cores
        Of a machine that ranks, of one that learns, and of the database's.
    rankers
        How many there are.
    hottest
        Share of the requests that the busiest of them gets; 0: all get the same.
    feedback_apart
        Whether events go to processes of their own, by a rule of the balancer for /v1/feedback: lists do not wait for
        them then.
    survive
        Machines that may be lost while the rest still carries the load.
    """

    requests: float = 100.0
    candidates: int = 100
    features: int = 136
    shown: int = 10
    learner: str = "pairrank"
    store: str = "postgresql"
    clicks_per_list: float = 0.3
    retention_days: float = 30.0
    average: float = 1.0
    headroom: float = 0.3
    cores: int = 8
    rankers: int = 1
    hottest: float = 0.0
    feedback_apart: bool = False
    survive: int = 1

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not (isinstance(value, int | float) and low <= value <= high):
                raise InvalidParameter(f"{name} is {value}; give a number from {low:g} to {high:g}")
        if self.store not in STORES:
            raise InvalidParameter(f"store is {self.store!r}; give {' or '.join(STORES)}")
        if self.shown > self.candidates:
            raise InvalidParameter(
                f"shown is {self.shown}, more than the {self.candidates} candidates there are; give fewer"
            )
        if self.rankers == 1 and 0 < self.hottest < 1:
            raise InvalidParameter(
                f"hottest is {self.hottest}, but there is one ranker, which gets all; give --rankers"
            )
        if 0 < self.hottest < 1 / self.rankers:
            raise InvalidParameter(
                f"hottest is {self.hottest}, but the busiest of {self.rankers} rankers gets at least 1/{self.rankers}"
            )

    @property
    def size(self) -> Size:
        """Of a list."""
        from rankloop.service.capacity.curves import Size  # with numpy, for which `rankloop --help` does not wait

        return Size(self.candidates, self.features, self.shown)

    @property
    def share(self) -> float:
        """Of requests that the busiest ranker gets."""
        return self.hottest or 1 / self.rankers
