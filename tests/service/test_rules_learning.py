"""Learning from lists with pins and quotas: as good a ranking as without them, and no credit for what was pinned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop import codec
from rankloop.service.ranking.features import Schema
from rankloop.service.ranking.model import Model, make_learner
from rankloop.service.ranking.rules import framed, heard
from rankloop.service.wire.calls import RankColumns
from rankloop.service.wire.rankers import Spec
from rankloop.service.wire.rules import Quota
from rankloop.types import Array, Candidates, Feedback

N, K, WIDTH, ROUNDS, SEEDS = 15, 6, 5, 400, 3
TASTE = np.array([1.5, 1.0, 0.0, -1.0, 0.5])
NAMES = [f"f{j}" for j in range(WIDTH)]
DISCOUNT = 1.0 / np.log2(np.arange(2, K + 2))


def attraction(rows: Array) -> Array:
    """How likely users who look at an item click it."""
    found: Array = 1.0 / (1.0 + np.exp(-3.0 * (rows @ TASTE - 1.0)))
    return found


def quality(learner: Any, exponent: int = 40) -> float:
    """Mean NDCG of what it believes best, on queries that it has not seen."""
    total = 0.0
    for q in range(exponent):
        rows = np.random.default_rng([9, q]).random((N, WIDTH))
        worth = attraction(rows)
        order = learner.best(Candidates("q", None, rows), K)
        total += float(worth[order] @ DISCOUNT) / float(np.sort(worth)[::-1][:K] @ DISCOUNT)
    return total / exponent


def taught(name: str, seed: int, pins: bool, quotas: bool) -> Any:
    """A learner after ROUNDS lists whose readers look less and less far down; pinned is the worst item, at the top."""
    spec = Spec(learner=name, features=NAMES, exposure="full", normalisation="none", seed=seed)
    schema = Schema(spec)
    model = Model(make_learner(spec), spec, 0, 0)
    for t in range(ROUNDS):
        rng = np.random.default_rng([seed, t])
        rows = rng.random((N, WIDTH))
        worth = attraction(rows)
        request = RankColumns(
            ids=list(range(N)),
            features=rows.tolist(),
            k=K,
            pinned={str(int(worth.argmin())): 1, str(int(worth.argsort()[1])): 3} if pins else {},
            quotas=[Quota("brand", 2, 4)] if quotas else [],
            groups={"brand": [i % 4 for i in range(N)]},
        )
        call, frame = framed(schema.read(request), spec, schema)
        candidates = schema.candidates(call)
        ranked = model.rank(candidates, min(call.k or K, candidates.n), t, spec, None, None, frame)
        free = ranked.choice.impression.items.tolist()
        shown = np.array(free if frame is None else frame.merged(free))
        looked = rng.random(K) < 1.0 / np.sqrt(np.arange(1, K + 1))
        clicks = (rng.random(K) < worth[shown]) & looked
        impression = codec.load_impression(ranked.body)
        model.learner.learn(impression, heard(impression, Feedback.clicks(clicks.astype(np.float64))), rng)
    return model.learner


@pytest.mark.parametrize("name", ["pdgd", "pairrank"])
def test_pins_and_quotas_do_not_bend_what_is_learned(name: str) -> None:
    plain = [quality(taught(name, seed, False, False)) for seed in range(SEEDS)]
    assert np.mean(plain) > 0.9, "there is something to learn"
    for pins, quotas in ((True, False), (False, True), (True, True)):
        ruled = [quality(taught(name, seed, pins, quotas)) for seed in range(SEEDS)]
        assert np.mean(ruled) > np.mean(plain) - 0.03, (pins, quotas, plain, ruled)


def test_a_bad_item_does_not_rise_by_being_pinned() -> None:
    """Sponsored items always stand at the top, and are clicked there: the learner does not come to like them."""
    spec = Spec(learner="pdgd", features=[*NAMES, "sponsored"], exposure="full", normalisation="none")
    schema, learner = Schema(spec), make_learner(spec)
    model = Model(learner, spec, 0, 0)
    for t in range(200):
        rng = np.random.default_rng([7, t])
        rows = np.column_stack([rng.random((N, WIDTH)), np.arange(N) == 0])
        request = RankColumns(ids=list(range(N)), features=rows.tolist(), k=K, pinned={"0": 1})
        call, frame = framed(schema.read(request), spec, schema)
        ranked = model.rank(schema.candidates(call), K - 1, t, spec, None, None, frame)
        impression = codec.load_impression(ranked.body)
        clicks = np.zeros(K)
        clicks[0] = 1.0
        clicks[1 + int(rng.integers(K - 1))] = 1.0
        learner.learn(impression, heard(impression, Feedback.clicks(clicks)), rng)
    assert learner.theta_[-1] == 0.0  # type: ignore[attr-defined]
