"""The scale that turns rewards in a unit into values from 0 to 1: a quantile of the rewards so far.

It is applied in the order of outcomes, which store the resulting values, so replay gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import frexp

import msgspec

from rankloop.wire.rankers import Reward

QUANTILE = 0.95  # of the positive rewards: one in twenty is clipped at 1
MOST = 4096  # rewards after which counts are halved, so that the scale follows the stream
PARTS = 32  # bins per power of two: a bin is at most 3 % wide
LOWEST, HIGHEST = -40, 60  # powers of two; what is outside is counted at the edge
LARGEST = 1e300  # that a sum of rewards may reach: a scale is always finite


class RewardSketch:
    """Counts of positive rewards in logarithmic bins, computed without a logarithm: the same on every machine.

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
        """Count positive rewards."""
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
        """Return the upper edge of the quantile's bin; None before the first positive reward."""
        total, upto = sum(self.counts.values()), 0
        for at in sorted(self.counts):
            upto += self.counts[at]
            if upto >= QUANTILE * total:
                power, part = divmod(at, PARTS)
                return float((0.5 + (part + 1) / (2 * PARTS)) * 2.0**power)
        return None

    def dumps(self) -> bytes:
        """Return the sketch as JSON."""
        return msgspec.json.encode(sorted(self.counts.items()))

    @classmethod
    def loads(cls, data: bytes | None) -> RewardSketch:
        """Read a sketch from JSON; None is an empty one."""
        return cls(None if data is None else dict(msgspec.json.decode(bytes(data), type=list[tuple[int, int]])))


def current_scale(reward: Reward | None, sketch: bytes | None) -> float | None:
    """Return the declared scale, or that of the sketch; None if there is none yet."""
    if reward is None:
        return None
    return RewardSketch.loads(sketch).scale() if reward.scale == "auto" else reward.scale


def item_value(click: float, reward: float, scale: float) -> float:
    """Return the value of an item from 0 to 1: the click, plus the reward's share of the rest.

    >>> item_value(0.25, 0.0, 50.0), item_value(0.25, 25.0, 50.0), item_value(0.25, 80.0, 50.0)
    (0.25, 0.625, 1.0)
    """
    return click + (1.0 - click) * min(reward / scale, 1.0)
