"""Click models whose numbers are known, and logs of their users."""

from __future__ import annotations

import numpy as np

from rankloop.clicks import MODELS, ClickModel, Pairs, SessionLog
from rankloop.core.types import Array

QUERIES, DOCUMENTS, RANKS = 3, 6, 5


def truth(name: str, seed: int = 0) -> ClickModel:
    """A model of that name with random numbers, for 3 queries of 6 documents and pages of up to 5."""
    rng = np.random.default_rng(seed)
    pairs = _pairs()
    table = np.tril(rng.uniform(0.4, 0.9, (RANKS, RANKS)))
    table[0, 0] = 1.0  # examination is relative to the largest
    learned: dict[str, Array] = {
        "attraction_": rng.uniform(0.15, 0.7, len(pairs)),
        "satisfaction_": rng.uniform(0.2, 0.8, len(pairs)),
        "stop_": rng.uniform(0.3, 0.7, RANKS),
        "examination_": table if name == "ubm" else np.linspace(1.0, 0.3, RANKS),
        "continuation_": np.array([0.8]) if name == "dbn" else np.array([0.9, 0.8, 0.3]),
        "rate_": np.array([0.2]) if name == "ctr" else np.linspace(0.5, 0.1, RANKS),
    }
    model = MODELS[name]()
    return model.given(pairs, **{key: learned[key] for key in model.learned})


def pages(count: int, rng: np.random.Generator, *, shortest: int = RANKS) -> SessionLog:
    """Pages of random documents in random order, without clicks, two pages a session."""
    lengths = rng.integers(shortest, RANKS + 1, count)
    shown = np.argsort(rng.random((count, DOCUMENTS)), axis=1)[:, :RANKS]
    shown += DOCUMENTS * rng.integers(QUERIES, size=(count, 1))
    shown[np.arange(RANKS) >= lengths[:, None]] = -1
    sessions = np.arange(count) // 2
    names = np.array([f"s{i}" for i in range(sessions[-1] + 1)])
    return SessionLog(_pairs(), shown, np.zeros(shown.shape, np.uint8), lengths, sessions, names)


def _pairs() -> Pairs:
    names = [(f"q{q}", f"d{d}") for q in range(QUERIES) for d in range(DOCUMENTS)]
    return Pairs.of([query for query, _ in names], [document for _, document in names])


def identified(name: str, model: ClickModel) -> Array:
    """The numbers that a log can tell: nobody goes on from the last rank, and no click is above the first."""
    parts = []
    for key, shape in model.learned.items():
        value = getattr(model, key)
        if key == "stop_" or shape == ("pairs",):
            value = value[:-1]
        elif name == "ubm" and key == "examination_":
            value = value[np.tril_indices(RANKS)]
        parts.append(value.ravel())
    return np.concatenate(parts)
