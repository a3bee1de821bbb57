"""How far a network is believed beside a line: as far as it has helped to foretell lists that it had not learned from.

A list's pairs are foretold before they are learned, with c times the line's score and g times the network's, for
several c and g. How well each does adds up, older lists counting less. The line alone (g = 0) stands there at its best
c, since how sure its scores are of an order is not what counts: a line that is too modest would gain from a network
that says the same once more. Of the network so much is taken as is surely better than that.

A network knows queries that it was trained on better than others, so the two kinds have sums of their own: those among
the lists kept, and those that are not. Lest the second kind should run out where the same queries come again and again,
some never train the network.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels import neural

GATES = np.array([0.0, 0.125, 0.25, 0.5, 1.0])
DOUBLINGS = np.arange(-2.0, 7.0)
SCALES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])  # 1 doubled so often
LIKELY = -0.02 * DOUBLINGS * DOUBLINGS  # log of a prior for c: near 1, where nothing says otherwise
CELLS = GATES.size * SCALES.size
KINDS = 2  # queries that the network does not know, and those that it does
FADE = 0.9995  # of a sum at each list of its kind: the last two thousand count
BAR = 2.0  # standard errors by which the network must be better than the line alone


class Evidence(NamedTuple):
    """What each gate at each scale has gained over guessing, for each kind of query."""

    gains: Array  # (kinds, cells) summed over lists
    products: Array  # (kinds, cells, cells) of a list's gains of two cells, summed likewise

    @classmethod
    def none(cls) -> Evidence:
        """Of no list."""
        return cls(np.zeros((KINDS, CELLS)), np.zeros((KINDS, CELLS, CELLS)))

    def share(self, known: bool) -> float:
        """What to multiply the network's scores by before the line's are added, for a query that it knows or not.

        A network that helps with queries that it does not know helps with those that it knows.
        """
        return max(self._best(kind) for kind in range(1 + known))

    def after(self, known: bool, line: Array, net: Array, pairs: Array, weights: Array) -> Evidence:
        """This and that of a list, whose documents the line and the network give these scores (k,)."""
        found = neural.gate_gains(line, net, GATES, SCALES, pairs, weights).ravel()
        gains, products = self.gains.copy(), self.products.copy()
        gains[int(known)] = FADE * gains[int(known)] + found
        products[int(known)] = FADE * products[int(known)] + found[:, None] * found
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
