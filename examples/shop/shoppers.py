"""Simulated shoppers who visit, think and click, through the HTTP client that a real shop would use."""

from __future__ import annotations

import heapq
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import count
from typing import Self, TypeVar

from examples.shop.shop import SHELVES, Shop
from rankloop.client import Client
from rankloop.core.errors import RankloopError
from rankloop.wire.calls import Candidate

T = TypeVar("T")
THINK_SECONDS = 0.4  # from seeing a ranking to clicking in it
REMEMBERED = 60.0  # seconds that `summary` covers


class Shoppers:
    """Visits at a steady rate, each sent to every ranker: the same shopper in front of each of them.

    Parameters
    ----------
    judge
        Called with a ranker and the NDCG of a ranking it returned.
    """

    def __init__(
        self, shop: Shop, rankers: list[str], client: Client, rate: float, judge: Callable[[str, float], None]
    ) -> None:
        self.shop, self.rankers, self.rate = shop, rankers, rate
        self.season = 0
        self.failures = 0
        self.error: BaseException | None = None
        self._client, self._judge = client, judge
        self._shelves = [
            [Candidate(item, row) for item, row in zip(items, rows.tolist(), strict=True)]
            for items, rows in zip(shop.products, shop.rows, strict=True)
        ]
        self._recent: dict[str, deque[tuple[float, float]]] = defaultdict(deque)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="shoppers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(timeout=10.0)

    def summary(self) -> str:
        """Mean NDCG of the last minute, by ranker."""
        parts = []
        for name in self.rankers:
            values = [value for _, value in self._recent[name]]
            parts.append(f"{name} {sum(values) / len(values):.2f}" if values else f"{name} –")
        return ", ".join(parts)

    def _work(self) -> None:
        try:
            self._come()
        except BaseException as error:  # raised by the main thread
            self.error = error

    def _come(self) -> None:
        """Send each visit when it is due and each click after a pause."""
        clicks: list[tuple[float, int, str, list[str]]] = []  # when, which, impression, items
        number, start = count(), time.monotonic()
        visit = 0
        while not self._ending.is_set():
            now = time.monotonic()
            if clicks and clicks[0][0] <= now:
                _, _, impression, clicked = heapq.heappop(clicks)
                self._try(lambda i=impression, c=clicked: self._client.click(i, c))  # type: ignore[misc]
            elif start + visit / self.rate <= now:
                for ranker in self.rankers:
                    for impression, clicked in self._visit(visit, ranker):
                        heapq.heappush(clicks, (time.monotonic() + THINK_SECONDS, next(number), impression, clicked))
                visit += 1
                start = max(start, now - visit / self.rate - 1.0)  # after a long pause, do not catch up
            else:
                self._ending.wait(0.005)

    def _visit(self, n: int, ranker: str) -> list[tuple[str, list[str]]]:
        """Ask for a ranking; the clicks that will follow."""
        who = self.shop.visit(n, self.season)
        query = SHELVES[who.shelf]
        answer = self._try(lambda: self._client.rank(ranker, self._shelves[who.shelf], query=query))
        if answer is None or answer.impression_id is None:
            return []
        shown = [str(item.id) for item in answer.items]
        value, now, recent = self.shop.quality(who, shown), time.monotonic(), self._recent[ranker]
        self._judge(ranker, value)
        recent.append((now, value))
        while recent[0][0] < now - REMEMBERED:
            recent.popleft()
        return [(answer.impression_id, self.shop.clicks(who, shown, n))]

    def _try(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except RankloopError:
            if not self._ending.is_set():
                self.failures += 1
                self._ending.wait(0.5)
            return None
