"""Rewards in a unit: the scale that turns them into values from 0 to 1, found in the stream of rewards itself.

The scale is decided when an impression is closed, in the order of outcomes, and the outcome stores the value that it
gave. So everything that reads outcomes (learning, replay, exports) sees values from 0 to 1 and gets the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import frexp

import msgspec

from rankloop.wire.rankers import Reward

QUANTILE = 0.95  # of the positive rewards: one in twenty is cut at 1
MOST = 4096  # rewards after which counts are halved, so that the scale follows the stream
PARTS = 32  # bins per power of two: a bin is at most 3 % wide
LOWEST, HIGHEST = -40, 60  # powers of two; what is outside is counted at the edge
LARGEST = 1e300  # that a sum of rewards may reach: a scale is always finite


class RewardSketch:
    """Counts of positive rewards in logarithmic bins, from which a quantile is read.

    Bins are found by taking the number apart, without a logarithm: the same on every machine.

    Examples
    --------
    >>> sketch = RewardSketch()
    >>> sketch.scale() is None
    True
    >>> sketch.add([10.0] * 19 + [500.0])
    >>> sketch.scale()
    10.25
    >>> RewardSketch.loads(sketch.dumps()).scale()
    10.25
    """

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts = counts or {}

    def add(self, rewards: Iterable[float]) -> None:
        """Count rewards; those of 0 do not count."""
        total = sum(self.counts.values())
        for reward in rewards:
            if reward > 0.0:
                fraction, power = frexp(reward)
                power = min(max(power, LOWEST), HIGHEST)
                at = power * PARTS + int((fraction - 0.5) * 2 * PARTS)
                self.counts[at] = self.counts.get(at, 0) + 1
                total += 1
                if total >= MOST:
                    self.counts = {at: count // 2 for at, count in self.counts.items() if count > 1}
                    total = sum(self.counts.values())

    def scale(self) -> float | None:
        """The upper edge of the bin that the quantile is in; None before the first positive reward."""
        total, upto = sum(self.counts.values()), 0
        for at in sorted(self.counts):
            upto += self.counts[at]
            if upto >= QUANTILE * total:
                power, part = divmod(at, PARTS)
                return float((0.5 + (part + 1) / (2 * PARTS)) * 2.0**power)
        return None

    def dumps(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(sorted(self.counts.items()))

    @classmethod
    def loads(cls, data: bytes | None) -> RewardSketch:
        """From JSON; None: nothing has been counted."""
        return cls(None if data is None else dict(msgspec.json.decode(bytes(data), type=list[tuple[int, int]])))


def scale_of(reward: Reward | None, sketch: bytes | None) -> float | None:
    """The scale in force: the declared one, or that of the stream; None if there is none (yet)."""
    if reward is None:
        return None
    return RewardSketch.loads(sketch).scale() if reward.scale == "auto" else reward.scale


def value_of(click: float, reward: float, scale: float) -> float:
    """What an item is worth, 0 to 1: the click, and of the rest as much as the reward is of the scale.

    >>> value_of(0.25, 0.0, 50.0), value_of(0.25, 25.0, 50.0), value_of(0.25, 80.0, 50.0)
    (0.25, 0.625, 1.0)
    """
    return click + (1.0 - click) * min(reward / scale, 1.0)
