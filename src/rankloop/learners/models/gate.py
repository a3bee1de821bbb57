"""How far a network is believed beside a linear model: as far as it has helped to predict impressions it had not seen.

Before an impression is learned, c times the linear score plus g times the network's predicts its pairs, for several c
and g, and how well each does is summed up with a discount. The network counts as much as it is surely better than the
linear model alone (g = 0) at its own best c. A network knows the queries it was trained on better than others, so the
two kinds have sums of their own; some queries never train the network, so that the second kind does not run out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels import neural

GATES = np.array([0.0, 0.125, 0.25, 0.5, 1.0])
DOUBLINGS = np.arange(-2.0, 7.0)
SCALES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])  # 1 doubled so often
LIKELY = -0.02 * DOUBLINGS * DOUBLINGS  # log of a prior for c around 1
CELLS = GATES.size * SCALES.size
KINDS = 2  # queries that the network does not know, and those that it does
DISCOUNT = 0.9995  # of a sum at each impression of its kind: the last two thousand count
BAR = 2.0  # standard errors by which the network must be better than the line alone


class Evidence(NamedTuple):
    """What each gate at each scale has gained over chance, for each kind of query."""

    gains: Array  # (kinds, cells) summed over impressions
    products: Array  # (kinds, cells, cells) of the gains of two cells, summed likewise

    @classmethod
    def none(cls) -> Evidence:
        """Nothing was seen yet."""
        return cls(np.zeros((KINDS, CELLS)), np.zeros((KINDS, CELLS, CELLS)))

    def share(self, known: bool) -> float:
        """The factor of the network's scores, for a query that it knows or not.

        A network that helps with queries that it does not know helps with those that it knows.
        """
        return max(self._best(kind) for kind in range(1 + known))

    def after(self, known: bool, line: Array, net: Array, pairs: Array, weights: Array) -> Evidence:
        """This and the evidence of an impression, to whose documents the two give these scores (k,)."""
        found = neural.gate_gains(line, net, GATES, SCALES, pairs, weights).ravel()
        gains, products = self.gains.copy(), self.products.copy()
        gains[int(known)] = DISCOUNT * gains[int(known)] + found
        products[int(known)] = DISCOUNT * products[int(known)] + found[:, None] * found
        return Evidence(gains, products)

    def _best(self, kind: int) -> float:
        """g/c of what has surely gained most over the line alone; 0 if nothing has."""
        gains, products = self.gains[kind] + np.tile(LIKELY, GATES.size), self.products[kind]
        scales = gains.reshape(GATES.size, SCALES.size).argmax(1)
        best = scales + np.arange(0, CELLS, SCALES.size)
        line, squares = best[0], products.diagonal()
        spread = squares[best] + squares[line] - 2.0 * products[best, line]
        sure = gains[best] - gains[line] - BAR * np.sqrt(np.maximum(spread, 0.0))
        chosen = sure.argmax()
        return float(GATES[chosen] / SCALES[scales[chosen]])
