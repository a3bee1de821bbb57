"""Adaptive: PairRank bit for bit while nothing changes; who knows better takes over when something does, and alarms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop.core import registry
from rankloop.core.capabilities import Drift
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import rows_of
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels.preferences import click_pairs
from rankloop.learners.click_pairs import RULES, propensity_weights
from rankloop.learners.models.drift import ALARM_EVIDENCE, KEPT_ALARMS
from rankloop.learners.pairwise.adaptive import Adaptive
from rankloop.learners.pairwise.pairrank import PairRank
from tests.reference import forgetting as naive

TASTE = np.array([3.0, 0.0, -3.0, 1.0])


def drift_of(learner: Adaptive) -> Drift:
    drift = learner.report().drift
    assert drift is not None
    return drift


def serve(learner: PairRank | Adaptive, rounds: int, taste: Array, seed: int = 0) -> list[list[int]]:
    """The lists shown to users who click what they like, each with the probability that their taste says."""
    shown = []
    for t in range(rounds):
        rng = np.random.default_rng([seed, t])
        candidates = Candidates("q", features=rng.random((8, taste.size)))
        impression = learner.rank(candidates, 5, rng)
        liked = 1.0 / (1.0 + np.exp(-2.0 * (impression.features - 0.5) @ taste))
        learner.learn(impression, Feedback.clicks((rng.random(5) < liked).astype(float)), rng)
        shown.append(impression.order.tolist())
    return shown


@pytest.mark.parametrize("parameters", [{"fast_forget": 1.0}, {"threshold": 1e9}, {"threshold": 1e9, "forget": 0.99}])
def test_without_an_alarm_it_is_pairrank_bit_for_bit(parameters: dict[str, Any]) -> None:
    """A single rate, or a bar that nothing exceeds: also where users change."""
    forget = parameters.get("forget", 1.0)
    plain, adaptive = PairRank(prior=1.0, forget=forget), Adaptive(prior=1.0, **parameters)
    for seed, taste in enumerate([TASTE, -TASTE]):
        assert serve(plain, 150, taste, seed) == serve(adaptive, 150, taste, seed)
    state = adaptive.state()
    for name, value in plain.state().items():
        assert state[name].tobytes() == value.tobytes(), name
    assert drift_of(adaptive)[:3] == (300, 0, 0)


def test_a_change_is_noticed_and_followed() -> None:
    plain, adaptive = PairRank(prior=1.0), Adaptive(prior=1.0)
    for seed, (rounds, taste) in enumerate([(600, TASTE), (150, -TASTE)]):
        for learner in (plain, adaptive):
            serve(learner, rounds, taste, seed)
        if seed == 0:  # nothing changed: PairRank's model ranks
            assert drift_of(adaptive)[:3] == (600, 0, 0)
            assert adaptive.theta_.tobytes() == plain.theta_.tobytes()
            assert np.linalg.norm(adaptive.model_.models_[0]) > 1.2 * np.linalg.norm(adaptive.theta_)
    told = drift_of(adaptive)
    assert told.lists == 750
    assert told.alarms == 1
    assert 600 < told.latest[0] < 700
    cosines = [float(it.theta_ @ -TASTE / np.linalg.norm(it.theta_)) for it in (plain, adaptive)]
    assert cosines[1] > max(0.0, cosines[0]) + 0.5 * float(np.linalg.norm(TASTE))


def test_a_taste_that_comes_back_is_remembered() -> None:
    """Who ranked before the change waits, unchanged, and takes over again when it foretells the clicks."""
    learner = Adaptive(prior=1.0)
    serve(learner, 600, TASTE, 0)
    serve(learner, 300, -TASTE, 1)
    assert drift_of(learner).alarms == 1
    serve(learner, 60, TASTE, 2)
    assert drift_of(learner).since > 900
    assert float(learner.theta_ @ TASTE) > 0.9 * np.linalg.norm(learner.theta_) * np.linalg.norm(TASTE)
    assert learner.model_.models_.shape == (2, 4)  # beside him who fades, and who kept what users liked meanwhile
    assert float(learner.model_.models_[1] @ -TASTE) > 0.9 * np.linalg.norm(learner.model_.models_[1]) * np.linalg.norm(
        TASTE
    )
    forgetful = PairRank(prior=1.0)
    serve(forgetful, 60, TASTE, 2)  # what was learned from 600 lists is surer than what can be learned from 60
    assert np.linalg.det(learner.model_.model.inverse_) < 0.1 * np.linalg.det(forgetful.inverse_)


def test_evidence_is_told_of_untempered_pairs() -> None:
    """What a pair teaches is less than what it tells: `log_likelihood_ratio` itself counts no document twice."""
    learner = Adaptive(prior=1.0, threshold=1e9)
    serve(learner, 60, TASTE)
    learner.model_.evidence_ = np.zeros(1)
    before, rivals = learner.theta_.copy(), learner.model_.models_.copy()
    impression = learner.rank(
        Candidates("q", features=np.random.default_rng(5).random((8, 4))), 5, np.random.default_rng(5)
    )
    clicks = np.array([0.0, 1.0, 0.0, 1.0, 1.0])
    learner.learn(impression, Feedback.clicks(clicks), np.random.default_rng(6))
    pairs = click_pairs(clicks, learner.examine_next, -1, RULES["all"], np.zeros(5))
    weights = propensity_weights(impression, clicks, pairs)
    rows = rows_of(impression, 4, base=False)
    expected = naive.log_likelihood_ratio(rows, [(int(a), int(b)) for a, b in pairs], weights.tolist(), before, rivals)
    assert learner.model_.evidence_ == pytest.approx(expected, rel=1e-9)
    assert abs(expected[0]) > 1e-4


def taken_over(rival: int, *, lists: int = 60, seed: int = 0) -> Adaptive:
    """A learner in which a rival has just taken over, right or wrong, and no other will."""
    learner = Adaptive(prior=1.0, threshold=1e9)
    serve(learner, lists, TASTE, seed)
    learner.model_._take_over(0)
    if rival > 0:
        serve(learner, lists, TASTE, seed + 1)
        learner.model_._take_over(rival)
    return learner


def in_step(learner: Adaptive, twins: dict[str, PairRank], rounds: int) -> None:
    """The twins learn from the lists that the learner shows."""
    for t in range(rounds):
        rng = np.random.default_rng([9, t])
        impression = learner.rank(Candidates("q", features=rng.random((8, 4))), 5, rng)
        clicks = Feedback.clicks((rng.random(5) < 0.4).astype(float))
        learner.learn(impression, clicks, np.random.default_rng([10, t]))
        for each in twins.values():
            each.learn(impression, clicks, np.random.default_rng([10, t]))


def twin(learner: Adaptive, theta: Array, inverse: Array, forget: float) -> PairRank:
    """A PairRank that goes on from a model of the learner's."""
    made = PairRank(prior=1.0, forget=forget)
    turn = {"theta_": theta, "inverse_": inverse, "turn_": learner.model_.taught_}
    made.load({name: turn.get(name, value) for name, value in learner.state().items() if name in made.state()})
    return made


def test_who_fades_goes_on_fading_while_he_ranks_beside_one_that_keeps() -> None:
    """Bit for bit PairRanks with forget=fast_forget and without, from the hand-over on: so slow drift is followed."""
    learner = taken_over(0)
    assert learner.model_.models_[0].tobytes() == learner.theta_.tobytes()
    rates = {"ranks": learner.fast_forget, "beside": 1.0}
    twins = {name: twin(learner, learner.theta_, learner.model_.model.inverse_, rate) for name, rate in rates.items()}
    in_step(learner, twins, 50)
    assert learner.theta_.tobytes() == twins["ranks"].theta_.tobytes()
    assert learner.model_.model.inverse_.tobytes() == twins["ranks"].inverse_.tobytes()
    assert learner.model_.models_[0].tobytes() == twins["beside"].theta_.tobytes()
    assert learner.model_.inverses_[0].tobytes() == twins["beside"].inverse_.tobytes()
    assert np.linalg.det(learner.model_.model.inverse_) > 2.0 * np.linalg.det(learner.model_.inverses_[0])


def test_who_kept_everything_takes_over_from_who_fades() -> None:
    """Then all is as at first: he keeps, the one that forgets on beside him, and nobody joins the past."""
    learner = taken_over(0)
    serve(learner, 50, TASTE, 1)
    fader, keeper, past = learner.theta_.copy(), learner.model_.models_[0].copy(), learner.model_.models_[1:].copy()
    twins = {"ranks": twin(learner, keeper, learner.model_.inverses_[0], 1.0)}
    twins["beside"] = twin(learner, fader, learner.model_.model.inverse_, learner.fast_forget)
    learner.model_._take_over(0)
    assert learner.theta_.tobytes() == keeper.tobytes()
    assert learner.model_.models_[1:].tobytes() == past.tobytes()
    in_step(learner, twins, 50)
    assert learner.theta_.tobytes() == twins["ranks"].theta_.tobytes()
    assert learner.model_.models_[0].tobytes() == twins["beside"].theta_.tobytes()


def test_a_model_of_the_past_does_not_disturb_who_fades() -> None:
    """After a change a past may be less wrong than who ranks: he must not cost what was learned since."""
    learner = taken_over(0)
    serve(learner, 50, -TASTE, 1)
    fader, keeper, old = learner.theta_.copy(), learner.model_.models_[0].copy(), learner.model_.models_[1].copy()
    learner.model_._take_over(1)
    assert learner.theta_.tobytes() == old.tobytes()
    assert learner.model_.models_[0].tobytes() == fader.tobytes()
    assert learner.model_.models_[1:].tobytes() == keeper.tobytes()  # he knows best what users liked meanwhile
    learner.model_._take_over(1)
    assert learner.model_.models_[0].tobytes() == fader.tobytes()  # neither ranked nor restarted
    assert learner.model_.models_[1:].tobytes() == old.tobytes()


def test_slow_drift_is_followed() -> None:
    """A taste that turns all the time: it is never far from it, where PairRank is."""
    turned = [TASTE * np.cos(a) + TASTE[::-1] * np.sin(a) for a in np.linspace(0.0, 2.0 * np.pi, 40, endpoint=False)]
    learners: dict[str, PairRank | Adaptive] = {"plain": PairRank(prior=1.0), "adaptive": Adaptive(prior=1.0)}
    cosines: dict[str, list[float]] = {name: [] for name in learners}
    for seed, taste in enumerate(turned):
        for name, learner in learners.items():
            serve(learner, 50, taste, seed)
            length = np.linalg.norm(learner.theta_) * np.linalg.norm(taste)
            cosines[name].append(float(learner.theta_ @ taste / length))
    assert np.mean(cosines["adaptive"][10:]) > 0.95 > 0.6 > np.mean(cosines["plain"][10:])


@pytest.mark.slow
def test_false_alarms_are_rare() -> None:
    """Ten learners, 1,500 lists each of users who do not change: no alarm, and nine of ten end as PairRank does."""
    alarms, moved = 0, 0
    for seed in range(10):
        learner = Adaptive(prior=1.0)
        taste = TASTE * np.random.default_rng(seed).choice([-1.0, 0.3, 1.0], 4)
        serve(learner, 1500, taste, seed)
        alarms += drift_of(learner).alarms
        moved += bool(learner.theta_ @ taste < 0.9 * np.linalg.norm(learner.theta_) * np.linalg.norm(taste))
    assert alarms == 0
    assert moved <= 1


def test_memory_is_bounded_whatever_happens() -> None:
    """A bar so low that there is an alarm all the time: three models, the latest alarms, and it goes on from a file."""
    learner = Adaptive(prior=1.0, threshold=1e-6)
    serve(learner, 400, TASTE)
    assert learner.model_.models_.shape == (3, 4)
    learner.model_.latest_, learner.model_.trial_ = np.arange(KEPT_ALARMS), np.array([ALARM_EVIDENCE, 5.0, 77.0])
    learner.model_._try(0.1)
    assert learner.model_.latest_.tolist() == [*range(1, KEPT_ALARMS), 77]
    again = registry.loads(registry.dumps(learner))
    assert isinstance(again, Adaptive)
    assert serve(learner, 50, -TASTE, 1) == serve(again, 50, -TASTE, 1)
    for name, value in learner.state().items():
        assert again.state()[name].tobytes() == value.tobytes(), name


def test_an_alarm_is_against_who_kept_everything() -> None:
    """The trial's former is he, ripe; it goes on over other hand-overs, and ends if the former is back."""
    learner = taken_over(0, lists=100)
    assert learner.model_.trial_.tolist() == [0.0, 0.0, 0.0]  # he had learned from a hundred lists only: not held to
    assert learner.model_.ripe_[0] == 100 + learner.model_._trial_length()
    serve(learner, 250, TASTE, 1)
    keeper = learner.model_.models_[0].copy()
    learner.model_._take_over(1)  # from one that fades: as he was he would soon be behind though nothing changes
    assert learner.model_.former_.tobytes() == keeper.tobytes()
    assert learner.model_.trial_.tolist() == [0.0, 200.0, 350.0]
    serve(learner, 5, TASTE, 2)
    left, begun = learner.model_.trial_[1:]
    learner.model_._take_over(0)
    assert (left, begun) == tuple(learner.model_.trial_[1:])
    assert left < 200.0
    assert learner.model_.former_.tobytes() == keeper.tobytes()
    back = next(e for e in range(1, 3) if learner.model_.models_[e].tobytes() == keeper.tobytes())
    learner.model_._take_over(back)
    assert learner.model_.trial_.tolist() == [0.0, 0.0, 0.0]


def test_who_settles_is_no_news() -> None:
    """One that keeps what the model that ranks forgets takes over because nothing changes: no trial."""
    learner = taken_over(0)
    serve(learner, 300, TASTE, 1)
    ripe = learner.model_.ripe_.copy()
    assert ripe[0] < learner.model_.lists_[0]
    learner.model_._take_over(0)
    assert learner.model_.trial_.tolist() == [0.0, 0.0, 0.0]
    assert learner.model_.ripe_.tolist() == ripe.tolist()


def test_alarms_come_from_adopted_lists_too() -> None:
    """In shadow: the order is someone else's, and does not change."""
    learner = Adaptive(prior=1.0)
    for seed, taste in enumerate([TASTE, -TASTE]):
        for t in range(500):
            rng = np.random.default_rng([seed, t])
            impression = learner.adopt(Candidates("q", features=rng.random((5, 4))), np.arange(5))
            liked = 1.0 / (1.0 + np.exp(-2.0 * (impression.features - 0.5) @ taste))
            learner.learn(impression, Feedback.clicks((rng.random(5) < liked).astype(float)), rng)
        assert (drift_of(learner).alarms > 0) == (seed == 1)


def test_who_watches_is_told() -> None:
    learner = Adaptive(prior=1.0)
    assert PairRank().report().drift is None
    told = drift_of(learner)
    assert (told.lists, told.since, told.alarms, told.latest.size) == (0, 0, 0, 0)
    serve(learner, 100, TASTE)
    assert drift_of(learner).lists == 100


def test_a_state_with_other_rivals_is_refused() -> None:
    learner = Adaptive(prior=1.0, threshold=1e-6)
    serve(learner, 30, TASTE)
    small = Adaptive(prior=1.0, past_models=1)
    with pytest.raises(InvalidInput, match="3 rivals"):
        small.load(learner.state())
    assert small.theta_.size == 0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"fast_forget": 0.0}, "fast_forget is 0.0"),
        ({"fast_forget": 1.1}, "fast_forget is 1.1"),
        ({"threshold": 0}, "threshold is 0"),
        ({"past_models": 0}, "past_models is 0"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Adaptive(**parameters)
