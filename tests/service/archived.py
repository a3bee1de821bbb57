"""Settled lists of every kind in a store, for the tests of what is exported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankloop.core import codec
from rankloop.core.types import Impression, SparseRows
from rankloop.service.storage import outcomes
from tests.service.stores import Store, ev

NOON = 1_790_000_000 // 86_400 * 86_400 + 43_200.0


def impression(number: int) -> Impression:
    """Lists of several lengths; ids of both kinds; features dense, sparse or none; notes of several shapes."""
    rng = np.random.default_rng(number)
    k = 1 + number % 4
    order = rng.permutation(9)[:k]
    items = order + 100 if number % 3 else np.array([f"ä-{'x' * int(p)}" for p in order])
    features: Any = rng.normal(size=(k, 3))
    if number % 5 == 1:
        features = None
    elif number % 5 == 2:
        features = SparseRows(np.arange(k + 1) * 2, np.tile([1, 7], k), rng.random(2 * k), 9)
    memo: dict[str, Any] = {"log_propensity": rng.normal(size=1), "candidates": np.array([9])}
    if number % 2:
        memo = {"shares": rng.random((k, k)), "none": np.empty(0), "flags": rng.random(k) < 0.5, "team": np.array("ä")}
    return Impression(f'q"{number % 7}\\', order, items, features, memo)


def settle(store: Store, numbers: Sequence[int], seconds: float = 60.0, **fields: Any) -> list[bytes]:
    """Show lists and settle them, so many seconds after each other; their bytes."""
    bodies = []
    for number in numbers:
        made = impression(number)
        bodies.append(codec.dump_impression(made))
        ids = [str(one) for one in made.items.tolist()]
        person = f"user-{number % 4}" if number % 3 == 0 else None
        given: dict[str, Any] = {"person": person, "body": bodies[-1], "shown": json.dumps(ids).encode(), **fields}
        name = store.show(**given)
        clicks = [ids[-1]] if number % 2 else []
        store.send(ev(f"of-{name}", name, clicks, final=True))
        store.now += seconds
    return bodies


def learned_bodies(store: Store, ranker: str = "shop") -> list[bytes]:
    """What the store has of settled lists."""
    found = store.see(outcomes.outcomes_from, ranker, 0, 10**6)
    return [one.body for one in found if isinstance(one.body, bytes)]
