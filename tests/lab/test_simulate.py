"""The loop: a function of seed, data and feedback, whoever looks at it."""

from __future__ import annotations

import numpy as np
import pytest

from rankloop.clicks.users import DependentClickUser
from rankloop.core import registry
from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Feedback, Impression
from rankloop.evaluation.metrics import ndcg
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.runs.probes import held_out
from rankloop.lab.runs.simulate import Delays, open_delays, simulate
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.worlds.world import Stationary

SMALL = "synthetic:mq2008?queries=30&vali=5&test=10"
LEARNERS = ["pairrank", "pdgd", "greedy"]


@pytest.fixture
def world() -> Stationary:
    rng = np.random.default_rng(3)
    features = rng.random((20 * 8, 4))
    grades = np.digitize(features @ np.array([1.0, -1.0, 0.5, 0.0]), [0.2, 0.6])
    return Stationary(Dataset("small", features, grades, np.arange(0, 161, 8), np.arange(20).astype(str)), k=5)


USER = DependentClickUser.named("navigational", 2)


@pytest.mark.parametrize("name", LEARNERS)
def test_same_seed_same_bits_other_seed_others(world: Stationary, name: str) -> None:
    def end(seed: int) -> bytes:
        learner = registry.make(name)
        for _ in simulate(learner, world, USER, 200, seed):
            pass
        return registry.dumps(learner)

    assert end(1) == end(1)
    assert end(1) != end(2)


@pytest.mark.parametrize("name", LEARNERS)
def test_evaluating_between_rounds_never_changes_the_run(world: Stationary, name: str) -> None:
    ends = []
    for evaluate in (False, True):
        learner, probe = registry.make(name), held_out(world.dataset)
        for step in simulate(learner, world, USER, 150, seed=5):
            if evaluate and step.t % 3 == 0:
                probe(learner)
                learner.rank(world.dataset.candidates(0), 3, np.random.default_rng(step.t))
        ends.append(registry.dumps(learner))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", LEARNERS)
def test_save_load_and_go_on_gives_the_same_bits(world: Stationary, name: str) -> None:
    whole = registry.make(name)
    for _ in simulate(whole, world, USER, 120, seed=7):
        pass
    streams, halves = Rng(7), registry.make(name)
    for t in range(120):
        if t % 40 == 20:
            halves = registry.loads(registry.dumps(halves))
        query = world.at(t, streams.for_event("world", t))
        shown = halves.rank(query.candidates, world.k, streams.for_event("rank", t))
        halves.learn(
            shown, USER.react(query.grades[shown.order], streams.for_event("user", t)), streams.for_event("learn", t)
        )
    assert registry.dumps(whole) == registry.dumps(halves)


def test_online_ndcg_is_that_of_the_lists_shown() -> None:
    """cndcg = Σ γ^(t-1) NDCG(list_t), with the ideal over all candidates, recomputed by hand."""
    from rankloop.lab.datasets.sources import open_split

    split = open_split(SMALL)
    trial = Trial("pdgd", SMALL, "navigational", rounds=60, k=5, gamma=0.9, seed=2)
    record = run(trial, split)
    user, learner = DependentClickUser.named("navigational", 2), registry.make("pdgd")
    values = [
        ndcg(step.round.grades[step.impression.order], 5, step.round.grades, empty="0")
        for step in simulate(learner, Stationary(split.train, 5), user, 60, seed=2)
    ]
    assert record.last("online.cndcg") == pytest.approx(sum(0.9**t * value for t, value in enumerate(values)))
    assert record.last("online.ndcg") == pytest.approx(np.mean(values))
    best = [
        ndcg(split.test.grades_of(q)[learner.best(split.test.candidates(q), 10)], 10, split.test.grades_of(q), "skip")
        for q in range(len(split.test))
    ]
    assert record.last("offline.ndcg@10") == pytest.approx(np.nanmean(best))


def test_held_out_skips_queries_with_nothing_relevant() -> None:
    data = Dataset("two", np.eye(4), np.array([0, 1, 0, 0]), np.array([0, 2, 4]), np.array(["a", "b"]))
    base = registry.make("base")
    assert held_out(data)(base) == {"offline.ndcg@10": pytest.approx(1 / np.log2(3))}
    assert held_out(data, empty="0")(base)["offline.ndcg@10"] == pytest.approx(1 / np.log2(3) / 2)
    assert held_out(data, empty="1")(base)["offline.ndcg@10"] == pytest.approx((1 / np.log2(3) + 1) / 2)


def _exchange(delays: Delays, rounds: int) -> list[tuple[int, str]]:
    streams, arrived = Rng(0), []
    for t in range(rounds):
        letter = Impression(str(t), np.array([0]), np.array([0]), None, {})
        for impression, _ in delays.exchange(t, letter, Feedback.clicks([1]), streams.for_event("delay", t)):
            arrived.append((t, impression.query))
    return arrived


def test_late_lost_and_duplicated_feedback_has_the_rates_asked_for() -> None:
    arrived = _exchange(Delays(mean=4.0, lost=0.2, duplicated=0.1), 20_000)
    waits = [t - int(sent) for t, sent in arrived]
    assert min(waits) >= 0
    assert np.mean(waits) == pytest.approx(4.0, abs=0.2)
    sent = [int(query) for _, query in arrived]
    assert sent != sorted(sent)  # out of order
    assert len(set(sent)) == pytest.approx(20_000 * 0.8, rel=0.02)
    assert len(sent) - len(set(sent)) == pytest.approx(20_000 * 0.8 * 0.1, rel=0.1)


def test_bad_delays_and_trials_are_named() -> None:
    assert open_delays("none") is None
    with pytest.raises(InvalidParameter, match=r"lost is 2\.0"):
        open_delays("late?lost=2")
    with pytest.raises(InvalidParameter, match="mean is 'soon'"):
        open_delays("late?mean=soon")
    with pytest.raises(InvalidParameter, match="rounds is 0"):
        Trial("pdgd", rounds=0)
    with pytest.raises(InvalidParameter, match="no probe is called 'color'"):
        Trial("pdgd", probes=("color",))
