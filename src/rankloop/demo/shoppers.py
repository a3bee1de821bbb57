"""Shoppers who come, look, think and click, through the same HTTP client that a real shop would use."""

from __future__ import annotations

import heapq
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Self, TypeVar

from rankloop.client import Client
from rankloop.core.errors import RankloopError
from rankloop.demo.shop import SHELVES, Shop
from rankloop.wire.calls import Candidate

T = TypeVar("T")
THINKS = 0.4  # seconds from seeing a list to clicking in it
REMEMBERED = 60.0  # seconds that `summary` looks back


class Shoppers:
    """Visits at a steady rate, each sent to every ranker: the same shopper in front of each of them.

    Parameters
    ----------
    judge
        Called with a ranker and the NDCG of a list it showed: the shop knows what its shoppers want.
    closing
        Whether the service has begun to stop: calls that fail from then on are nobody's fault.
    """

    def __init__(
        self,
        shop: Shop,
        rankers: list[str],
        client: Client,
        rate: float,
        judge: Callable[[str, float], None],
        closing: Callable[[], bool],
    ) -> None:
        self.shop, self.rankers, self.rate = shop, rankers, rate
        self.season = 0
        self.failures = 0
        self.error: BaseException | None = None
        self._client, self._judge, self._closing = client, judge, closing
        self._shelves = [
            [Candidate(item, row) for item, row in zip(items, rows.tolist(), strict=True)]
            for items, rows in zip(shop.products, shop.rows, strict=True)
        ]
        self._recent: dict[str, deque[tuple[float, float]]] = defaultdict(deque)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rankloop-shoppers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(timeout=10.0)

    def summary(self) -> str:
        """What the lists of the last minute were worth, by ranker."""
        parts = []
        for name in self.rankers:
            values = [value for _, value in self._recent[name]]
            parts.append(f"{name} {sum(values) / len(values):.2f}" if values else f"{name} –")
        return ", ".join(parts)

    def _work(self) -> None:
        try:
            self._come()
        except BaseException as error:  # told by whoever waits for the shoppers
            self.error = error

    def _come(self) -> None:
        """A visit when it is due, a click when it was thought over."""
        clicks: list[tuple[float, int, str, list[str]]] = []  # when, which, impression, items
        number, start = count(), time.monotonic()
        visit = 0
        while not self._ending.is_set():
            now = time.monotonic()
            if clicks and clicks[0][0] <= now:
                _, _, impression, clicked = heapq.heappop(clicks)
                self._tried(lambda i=impression, c=clicked: self._client.click(i, c))  # type: ignore[misc]
            elif start + visit / self.rate <= now:
                for ranker in self.rankers:
                    for impression, clicked in self._visit(visit, ranker):
                        heapq.heappush(clicks, (time.monotonic() + THINKS, next(number), impression, clicked))
                visit += 1
                start = max(start, now - visit / self.rate - 1.0)  # after a long pause, do not run after it
            else:
                self._ending.wait(0.005)

    def _visit(self, n: int, ranker: str) -> list[tuple[str, list[str]]]:
        """A shopper looks at a list; what will be clicked, if the list is there."""
        who = self.shop.visit(n, self.season)
        query = SHELVES[who.shelf]
        answer = self._tried(lambda: self._client.rank(ranker, self._shelves[who.shelf], query=query))
        if answer is None or answer.impression_id is None:
            return []
        shown = [str(item.id) for item in answer.items]
        value, now, recent = self.shop.quality(who, shown), time.monotonic(), self._recent[ranker]
        self._judge(ranker, value)
        recent.append((now, value))
        while recent[0][0] < now - REMEMBERED:
            recent.popleft()
        return [(answer.impression_id, self.shop.clicks(who, shown, n))]

    def _tried(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except RankloopError:
            if not (self._ending.is_set() or self._closing()):
                self.failures += 1
                self._ending.wait(0.5)
            return None
