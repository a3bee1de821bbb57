"""Compiled runs are the plain loop, bit for bit; the reference values of the paper's first three figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop.clicks.users import Grader
from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import clone
from rankloop.core.registry import make
from rankloop.core.types import Array
from rankloop.evaluation.metrics import ndcg
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.compiled import run_contextual, run_items
from rankloop.lab.runs.hindsight import Regret
from rankloop.lab.runs.simulate import Delays, simulate
from rankloop.lab.worlds.item_worlds import Corrupted, Switching
from rankloop.lab.worlds.world import Stationary
from rankloop.learners.baselines.random_order import RandomOrder
from rankloop.learners.grades.ftpl_full import FTPLFull
from rankloop.learners.grades.listnet_full import ListNetFull
from rankloop.learners.grades.rtopk import RTopK
from rankloop.learners.grades.rtopk_items import RTopKItems

ROUNDS, SEEDS = 10_000, 10


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_split("synthetic:mq2008?queries=40&vali=1&test=1&features=9").train


# -- the same as the plain loop --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "learner",
    [
        RTopKItems(grades=2, horizon=400),
        RTopKItems("sumloss", top=3, grades=2, below="random"),
        RTopKItems("precision", top=2, grades=2, horizon=300, blocks=20),
        FTPLFull(grades=2),
        FTPLFull("sumloss", grades=2, horizon=500),
    ],
)
def test_a_run_over_items_is_the_plain_loop(learner: RTopKItems | FTPLFull) -> None:
    world = Switching(items=7, relevant=3, highest=2, flip=0.2, every=150)
    found = run_items(learner, world, 400, seed=5, measures=["dcg", "sumloss"], at=[100, 400])
    fresh = clone(learner)
    user = Grader(learner.top if isinstance(learner, RTopKItems) else 0)
    plain = {name: Regret(name, 7) for name in ("dcg", "sumloss")}
    for step in simulate(fresh, world, user, 400, seed=5):
        for regret in plain.values():
            regret.add(step.impression.order[None, :], step.round.grades[None, :])
        if step.t + 1 in (100, 400):
            at = [100, 400].index(step.t + 1)
            assert [found.regret[name][at] for name in plain] == pytest.approx([r.value for r in plain.values()])


@pytest.mark.parametrize(
    "learner",
    [
        RTopK(),
        RTopK("kl", 1, random_propensity="exact"),
        RTopK("squared", 3, known="exact"),
        RTopK("smoothdcg", 1),
        ListNetFull(),
        RandomOrder(),
    ],
)
def test_a_run_over_queries_is_the_plain_loop_bit_for_bit(learner: Any, data: Dataset) -> None:
    found = run_contextual(learner, data, 300, seed=3)
    k = 10
    world = Stationary(data, int(np.diff(data.offsets).max()) if isinstance(learner, ListNetFull) else k)
    fresh = clone(learner)
    user = Grader(getattr(learner, "top", 0), learner.feedback)
    for step in simulate(fresh, world, user, 300, seed=3):
        shown = step.round.grades[step.impression.order]
        assert found.ndcg[step.t] == pytest.approx(ndcg(shown, k, step.round.grades), abs=1e-15)
    if not isinstance(learner, RandomOrder):
        assert found.theta.tobytes() == fresh.theta_.tobytes()


def test_losses_are_those_of_the_scores_that_made_the_list(data: Dataset) -> None:
    """Exploring, scores are the random keys; the loss of a round is known in advance for the first one."""
    learner = RTopK("squared", 1, explore=0.0)
    run = run_contextual(learner, data, 50, losses=True)
    first = Stationary(data).at(0, np.random.Generator(np.random.Philox(0)))
    assert run.losses.size == 50
    assert first.grades.size  # all scores are 0 at first
    plain = next(iter(simulate(RTopK("squared", 1, explore=0.0), Stationary(data), Grader(1), 1)))
    assert run.losses[0] == pytest.approx(float((plain.round.grades**2).sum()))
    assert run_contextual(learner, data, 50).losses.size == 0


def test_a_learner_without_a_compiled_loop_is_named(data: Dataset) -> None:
    with pytest.raises(InvalidParameter, match="RTopK has no compiled loop over items without features"):
        run_items(RTopK(), Corrupted(), 10)
    with pytest.raises(InvalidParameter, match=r"PDGD has no compiled loop over queries.*method compiled_queries"):
        run_contextual(make("pdgd"), data, 10)


# -- reference values ------------------------------------------------------------------------------------------------


def average_regret(learner: RTopKItems | FTPLFull, at: list[int]) -> Array:
    """(c,) DCG regret over rounds, mean over ten seeds; m = 20, 5 relevant, flip .1."""
    runs = [run_items(learner, Corrupted(seed=seed), at[-1], seed, at=at).regret["dcg"] for seed in range(SEEDS)]
    return np.asarray(np.mean(runs, axis=0) / np.array(at))


def items_learner(blocks: int, top: int = 1) -> RTopKItems:
    return RTopKItems(grades=1, horizon=ROUNDS, blocks=blocks, top=top, below="random")


@pytest.fixture(scope="module")
def figures() -> dict[tuple[int, int], Array]:
    settings = [(10, 1), (50, 1), (100, 1), (200, 1), (400, 1), (200, 5), (200, 10)]
    return {(blocks, top): average_regret(items_learner(blocks, top), [500, ROUNDS]) for blocks, top in settings}


@pytest.fixture(scope="module")
def full() -> float:
    return float(average_regret(FTPLFull(grades=1, horizon=ROUNDS), [ROUNDS])[0])


@pytest.mark.parametrize(
    ("blocks", "top", "wanted"),
    [
        (10, 1, 0.53),
        (50, 1, 0.32),
        (100, 1, 0.33),
        (200, 1, 0.46),
        (400, 1, 0.78),
        (200, 5, 0.19),
        (200, 10, 0.16),
    ],
)
def test_reference_values(figures: dict[tuple[int, int], Array], blocks: int, top: int, wanted: float) -> None:
    assert figures[blocks, top][1] == pytest.approx(wanted, rel=0.15)


def test_orderings(figures: dict[tuple[int, int], Array], full: float) -> None:
    """Regret falls with k; full information is far better; early on 200 blocks fall fastest; 400 mostly explore."""
    assert figures[200, 1][1] > figures[200, 5][1] > figures[200, 10][1]
    assert full == pytest.approx(0.02, rel=0.15)
    assert full < figures[200, 10][1] / 5
    assert min(figures[blocks, 1][0] for blocks in (10, 50, 100, 200, 400)) == figures[200, 1][0]
    assert figures[400, 1][1] > figures[200, 1][1]


def test_following_the_leader_below_halves_the_regret(figures: dict[tuple[int, int], Array]) -> None:
    leader = average_regret(RTopKItems(grades=1, horizon=ROUNDS, blocks=200), [ROUNDS])[0]
    assert leader < 0.65 * figures[200, 1][1]


def test_regret_grows_like_two_thirds_or_slower() -> None:
    """Horizon unknown: the log-log slope of regret over rounds, from 1,000 to 100,000."""
    at = [1000, 100_000]
    run = np.mean(
        [run_items(RTopKItems(grades=1), Corrupted(seed=s), at[-1], s, at=at).regret["dcg"] for s in range(3)], 0
    )
    slope = np.log(run[1] / run[0]) / np.log(100)
    assert 0.4 < slope < 0.70


def test_late_lost_and_doubled_grades_cost_little() -> None:
    world, rounds = Corrupted(items=8, relevant=2), 2000

    def regret(delays: Delays | None) -> float:
        found = Regret("dcg", 8)
        for step in simulate(RTopKItems(grades=1, horizon=rounds), world, Grader(1), rounds, 1, delays):
            found.add(step.impression.order[None, :], step.round.grades[None, :])
        return found.value

    at_once, late = regret(None), regret(Delays(mean=20, lost=0.2, duplicated=0.1))
    chance = Regret("dcg", 8)
    for step in simulate(RandomOrder(), world, Grader(1, "clicks"), rounds, 1):
        chance.add(step.impression.order[None, :], step.round.grades[None, :])
    assert late < 1.5 * at_once < chance.value
