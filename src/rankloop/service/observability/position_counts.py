"""Click curves: how often each position was shown and clicked, gathered here and passed to the metrics now and then.

A list of ten would otherwise be twenty calls to the metrics an outcome.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from rankloop.service.observability.metrics import Metrics


class PositionCounts:
    """Counts since the last `flush`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lengths: dict[str, Counter[int]] = defaultdict(Counter)  # ranker -> list length -> lists
        self._clicks: dict[str, Counter[int]] = defaultdict(Counter)  # ranker -> slot -> clicks

    def add(self, ranker: str, values: list[float], length: int) -> None:
        """An outcome of a list of `length`."""
        clicked = [slot for slot, value in enumerate(values) if value > 0]
        with self._lock:
            self._lengths[ranker][length] += 1
            if clicked:
                self._clicks[ranker].update(clicked)

    def flush(self, metrics: Metrics) -> None:
        """Pass the counts on."""
        with self._lock:
            lengths, self._lengths = self._lengths, defaultdict(Counter)
            clicks, self._clicks = self._clicks, defaultdict(Counter)
        for ranker, lists in lengths.items():
            shown: Counter[int] = Counter()
            for length, count in lists.items():
                for slot in range(length):
                    shown[slot] += count
            for slot, count in shown.items():
                metrics.count("shown_positions_total", count, ranker=ranker, position=slot + 1)
        for ranker, slots in clicks.items():
            for slot, count in slots.items():
                metrics.count("clicked_positions_total", count, ranker=ranker, position=slot + 1)
