"""Learning from lists with pins and quotas: as good a ranking as without them, and no credit for what was pinned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.service.ranking.model import PublishedModel, make_learner
from rankloop.service.ranking.placement import feedback_without_pins
from rankloop.service.serving.schema import Schema
from rankloop.wire.basics import Quota
from rankloop.wire.calls import RankColumns
from rankloop.wire.rankers import Spec

N, K, WIDTH, ROUNDS, SEEDS = 15, 6, 5, 300, 4
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


def taught(name: str, seed: int, pins: str = "none", quotas: bool = False) -> Any:
    """A learner after ROUNDS lists whose readers look less and less far down.

    With pins "shown" the two worst items of each query stand at 1 and 3. With "gone" they are not there, and the list
    has the four positions that they leave, which are looked at as often.
    """
    spec = Spec(learner=name, features=NAMES, exposure="full", normalization="none", seed=seed)
    schema = Schema(spec)
    model = PublishedModel(make_learner(spec), spec, 0, 0)
    places = np.array([2, 4, 5, 6]) if pins == "gone" else np.arange(1, K + 1)
    for t in range(ROUNDS):
        rng = np.random.default_rng([seed, t])
        rows = rng.random((N, WIDTH))
        worth = attraction(rows)
        worst = [str(item) for item in worth.argsort()[:2].tolist()]
        request = RankColumns(
            ids=list(map(str, range(N))),
            features=rows.tolist(),
            k=places.size,
            pinned=dict(zip(worst, (1, 3), strict=True)) if pins == "shown" else {},
            excluded=[*worst] if pins == "gone" else [],
            quotas=[Quota("brand", 2, 4)] if quotas else [],
            groups={"brand": [i % 4 for i in range(N)]},
        )
        call, frame = schema.constrain(schema.read(request), spec)
        candidates = schema.candidates(call)
        ranked = model.rank(candidates, min(call.k or K, candidates.n), t, spec, None, None, frame)
        free = ranked.choice.impression.items.tolist()
        shown = np.array(free if frame is None else frame.merged(free), np.int64)
        looked = rng.random(places.size) < 1.0 / np.sqrt(places)
        clicks = (rng.random(places.size) < worth[shown]) & looked
        impression = codec.load_impression(ranked.body)
        model.learner.learn(
            impression, feedback_without_pins(impression, Feedback.clicks(clicks.astype(np.float64))), rng
        )
    return model.learner


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pdgd", "pairrank"])
def test_pins_and_quotas_do_not_bias_learning(name: str) -> None:
    """Quotas cost nothing; pins cost the positions that they take and no more."""
    found = {
        arm: np.mean([quality(taught(name, seed, *arm)) for seed in range(SEEDS)])
        for arm in (("none", False), ("none", True), ("gone", False), ("shown", False), ("shown", True))
    }
    assert found["none", False] > 0.95, "there is something to learn"
    assert found["none", True] > found["none", False] - 0.02, found
    for quotas in (False, True):
        assert found["shown", quotas] > found["gone", False] - 0.02, found


def test_a_pinned_item_gets_no_credit() -> None:
    """Sponsored items always stand at the top, and are clicked there: the learner does not come to like them."""
    spec = Spec(learner="pdgd", features=[*NAMES, "sponsored"], exposure="full", normalization="none")
    schema, learner = Schema(spec), make_learner(spec)
    model = PublishedModel(learner, spec, 0, 0)
    for t in range(200):
        rng = np.random.default_rng([7, t])
        rows = np.column_stack([rng.random((N, WIDTH)), np.arange(N) == 0])
        request = RankColumns(ids=list(range(N)), features=rows.tolist(), k=K, pinned={"0": 1})
        call, frame = schema.constrain(schema.read(request), spec)
        ranked = model.rank(schema.candidates(call), K - 1, t, spec, None, None, frame)
        impression = codec.load_impression(ranked.body)
        clicks = np.zeros(K)
        clicks[0] = 1.0
        clicks[1 + int(rng.integers(K - 1))] = 1.0
        learner.learn(impression, feedback_without_pins(impression, Feedback.clicks(clicks)), rng)
    assert learner.theta_[-1] == 0.0  # type: ignore[attr-defined]
