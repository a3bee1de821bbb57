"""Learners tried on a log: what is asked of them, what they learn, and what the figures say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.core import codec, registry
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Array, Candidates, Feedback, Impression
from rankloop.evaluation.off_policy_sums import GROUPS
from rankloop.kernels import plackett_luce
from rankloop.service.offline.off_policy_estimates import Estimates, SessionGathering, estimate_policies
from rankloop.service.offline.policy_comparison import (
    BASE,
    LOGGED,
    Comparison,
    ComparisonSettings,
    ImpressionTable,
    plan_comparison,
    run_comparison,
    swap_shares,
)
from rankloop.service.offline.replay import open_store
from rankloop.service.ranking.exposure import choose
from rankloop.wire.rankers import Spec
from tests.service.app_fixtures import Service, names, teach

THETA = np.arange(1.0, 6.0) ** -0.8
LIKED = np.array([0.9, 0.2, 0.6, 0.4, 0.75, 0.1, 0.5, 0.3])


def a_log(learner: str, lists: int, n: int, k: int, seed: int, tries: Comparison) -> Array:
    """Let a learner serve position-based users of three queries, the tries walk along; (lists, k) attractions."""
    rng, streams = np.random.default_rng(seed), Rng(seed)
    features = rng.random((3, n, 4))
    served, liked = registry.make(learner), []
    for t in range(lists):
        q = int(rng.integers(3))
        shown = served.rank(Candidates(f"q{q}", np.arange(n), features[q]), k, streams.for_event("rank", t))
        liked.append(np.roll(LIKED, q)[:n][shown.order])
        clicks = (rng.random(k) < THETA[:k] * liked[-1]).astype(np.float64)
        tries.add(t, shown, clicks)
        served.learn(shown, Feedback.clicks(clicks), streams.for_event("learn", t))
    return np.array(liked)


def trying(
    challengers: list[str], logged: str, seed: int, shows: Any = "rank", on_impression: Any = None, clip: float = np.inf
) -> Comparison:
    settings = ComparisonSettings(tuple(challengers), logged, seed, shows, clip=clip)
    return Comparison(settings, on_impression)


def table_of(tries: Comparison) -> ImpressionTable:
    """All impressions that were added: fewer than a portion."""
    found: list[ImpressionTable] = []
    tries.on_table = found.append
    tries.flush()
    (table,) = found
    return table


def shown(order: list[int], memo: dict[str, Array] | None = None) -> Impression:
    features = np.eye(9)[order]
    return Impression("q", np.array(order), np.array([f"i{p}" for p in order]), features, memo or {})


def test_lists_of_a_user_are_one_unit() -> None:
    """Whose list it was is kept as a number; lists of nobody known are each another's."""
    tries = trying(["base"], "pdgd", seed=0)
    for t, user in enumerate(["ann", None, "bob", "ann", None]):
        tries.add(t, shown([4, 0, 7]), np.array([0.0, 0.0, 1.0]), user=user)
    table = table_of(tries)
    ann, nobody, bob, again, _ = table.users.tolist()
    assert (ann, nobody) == (again, 0)
    assert bob not in (ann, 0)
    groups = table.group.tolist()
    assert groups == [ann % GROUPS, 1, bob % GROUPS, ann % GROUPS, 4]
    units, there = tries.tally().units.units(GROUPS)
    assert (units.number, there.sum()) == (4, 4)
    alone = trying(["base"], "pdgd", seed=0)
    alone.add(0, shown([4, 0, 7]), np.zeros(3))
    assert not alone.tally().units.by_user


# -- what a challenger is asked, and what it learns ----------------------------------------------------------------


def test_ranks_are_of_the_items_that_were_shown() -> None:
    """Items 4, 0, 7 of the candidates, shown in that order: the base order has them as 0, 4, 7."""
    tries = trying(["base", "greedy"], "pdgd", seed=0, shows="best")
    tries.add(0, shown([4, 0, 7]), np.array([0.0, 0.0, 1.0]))
    tries.add(1, shown([8, 2]), np.zeros(0))
    lists = table_of(tries)
    assert lists.clicks.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert lists.ranks[LOGGED].tolist() == [[0, 1, 2], [0, 1, -1]]
    assert lists.ranks[BASE].tolist() == lists.ranks["base"].tolist() == [[1, 0, 2], [1, 0, -1]]
    assert lists.ranks["greedy"].tolist() == [[1, 0, 2], [1, 0, -1]]  # cold: best is the base order
    assert np.isnan(lists.log_weights["greedy"]).all()
    again = trying(["greedy"], "pdgd", seed=0, shows="best")
    for t in range(2):
        again.add(t, shown([4, 0, 7]), np.array([0.0, 0.0, 1.0]))
    assert table_of(again).ranks["greedy"].tolist() == [[1, 0, 2], [2, 1, 0]]  # asked first, taught after


@pytest.mark.parametrize("name", ["pairrank", "pdgd", "greedy"])
def test_the_logged_learner_itself_learns_the_same_bits(name: str, tmp_path: Path) -> None:
    """Same learner, parameters and seed: it learns from the logged lists as they are, and ends where the ranker did."""
    with Service(tmp_path / "shop.db") as service:
        service.ready().put("shop", learner=name, features=names(3), exposure="full", seed=3)
        teach(service, "shop", 25)
        state = codec.loads(service.state("shop"))[0]
    with open_store(str(tmp_path / "shop.db")) as database:
        tries = run_comparison(
            plan_comparison(database, "shop", [f"{name}?init=base", "epsilon-greedy"])
        )  # as a ranker starts
        part = run_comparison(plan_comparison(database, "shop", [f"{name}?init=base"], since=5, at=15))
    found = tries.challengers[0].learner.state()
    assert {key: value.tobytes() for key, value in found.items()} == {k: v.tobytes() for k, v in state.items()}
    assert (tries.tally().lists, part.tally().lists, tries.tally().drawn) == (25, 10, 25)
    assert tries.idle() == []


def test_other_learners_adopt_the_logged_lists() -> None:
    """And so does one of the same kind whose parameters would have needed other notes."""
    tries = trying(["pdgd", "pairrank"], "greedy", seed=1)
    a_log("greedy", 30, 6, 4, 0, tries)
    assert not any(one.own for one in tries.challengers)
    assert tries.idle() == []
    tries = trying(["pairrank", "pairrank?pairs=matched"], "pairrank", seed=1)
    a_log("pairrank", 30, 6, 4, 0, tries)
    assert all(one.own for one in tries.challengers)
    # One list without notes is adopted; those after it are learned from as they were drawn again.
    other = trying(["pdgd"], "pdgd", seed=1)
    other.add(0, shown([4, 0, 7]), np.array([0.0, 1.0, 0.0]))
    adopted = other.challengers[0].learner.state()["theta_"].copy()
    assert np.any(adopted != 0)
    notes = {"scores": np.array([0.0, 3.0, 0.0]), "rest": np.array([-np.inf])}
    states = []
    for memo in (notes, None):
        again = trying(["pdgd"], "pdgd", seed=1)
        again.add(0, shown([4, 0, 7]), np.array([0.0, 1.0, 0.0]))
        again.add(1, shown([4, 0, 7], memo), np.array([0.0, 1.0, 0.0]))
        states.append(again.challengers[0].learner.state()["theta_"].tolist())
    assert states[0] != states[1]


def test_nothing_is_learned_from_what_the_ranker_did_not_learn() -> None:
    tries = trying(["greedy", "dbgd"], "greedy", seed=0)
    tries.add(0, shown([4, 0, 7]), np.array([0.0, 0.0, 1.0]), learn=False)
    assert tries.idle() == ["greedy", "dbgd"]
    assert tries.tally().lists == 1


def test_a_challenger_that_does_not_fit_is_named() -> None:
    with pytest.raises(InvalidParameter):
        trying(["greedy", "greedy"], "pdgd", 0)
    tries = trying(["greedy"], "base", 0)
    bare = Impression("q", np.arange(2), np.arange(2), None, {})
    with pytest.raises(InvalidInput, match="features"):
        tries.add(0, bare, np.zeros(2))


# -- propensities --------------------------------------------------------------------------------------------------


def test_weights_are_ratios_of_list_probabilities() -> None:
    """Whole lists only; where the challenger's probability is not known, what it drew decides."""
    rng, candidates = np.random.default_rng(0), Candidates("q", np.arange(3), np.eye(3))
    tries = trying(["epsilon-greedy?epsilon=0.5", "dbgd"], "random", seed=0)
    random = registry.make("random")
    for t in range(40):
        tries.add(t, random.rank(candidates, 3, rng), np.zeros(3), learn=False)
    tries.add(40, random.rank(candidates, 2, rng), np.zeros(2))
    lists = table_of(tries)
    assert (tries.tally().drawn, lists.log_weights[LOGGED].size) == (41, 41)
    assert all(np.isnan(weights[40]) for weights in lists.log_weights.values())
    assert lists.log_weights[LOGGED][:40].tolist() == [0.0] * 40
    same = (lists.ranks[BASE][:40] == np.arange(3)).all(axis=1)
    assert np.exp(lists.log_weights[BASE][:40]) == pytest.approx(np.where(same, 6.0, 0.0))
    # cold, all scores alike: ε-greedy is uniform, too
    assert np.exp(lists.log_weights["epsilon-greedy?epsilon=0.5"][:40]) == pytest.approx(np.ones(40))
    drew = (lists.ranks["dbgd"][:40] == np.arange(3)).all(axis=1)
    assert np.exp(lists.log_weights["dbgd"][:40]) == pytest.approx(np.where(drew, 6.0, 0.0))


def test_swap_shares_are_read_from_what_drew_the_list() -> None:
    rng, candidates = np.random.default_rng(0), Candidates("q", np.arange(6), np.eye(6))
    for name in ("random", "pairrank", "pdgd"):
        learner = registry.make(name)
        cold = learner.rank(candidates, 4, rng)
        assert swap_shares(cold, True) == pytest.approx(0.5 * (1 - np.eye(4)))
        learner.learn(cold, Feedback.clicks([0, 0, 1, 0]), rng)
        taught = learner.rank(candidates, 4, rng)
        shares = swap_shares(taught, name != "pdgd")
        assert shares is not None
        assert shares == pytest.approx(shares.T)
        if name == "pdgd":
            rest = taught.memo["rest"][0]
            expected = plackett_luce.swap_shares(taught.memo["scores"], rest, np.array([[0, 2], [1, 3]]))
            assert shares[[0, 1], [2, 3]] == pytest.approx(expected)
    bubble = registry.make("bubblerank").rank(candidates, 4, rng)
    parity = int(bubble.memo["parity"][0])
    neighbors = np.diag([0.5, 0.0, 0.5] if parity == 0 else [0.0, 0.5, 0.0], 1)
    assert swap_shares(bubble, False) == pytest.approx(neighbors + neighbors.T)  # every second pair
    blocks = {"blocks": np.array([0, 0, -1, -1, 1]), "log_propensity": np.zeros(1), "candidates": np.array([7])}
    inside = np.zeros((4, 4))
    inside[0, 1] = inside[1, 0] = 0.5  # the last two took no part
    assert swap_shares(shown([4, 0, 7, 2], blocks), False) == pytest.approx(inside)
    greedy = registry.make("greedy")
    greedy.learn(greedy.rank(candidates, 4, rng), Feedback.clicks([0, 0, 1, 0]), rng)
    assert swap_shares(greedy.rank(candidates, 4, rng), True) is None


def test_a_list_that_is_as_likely_as_a_random_one_by_accident_is_no_swap() -> None:
    """ε = .5 of three: the best comes first in 2 of 3 lists, the worst of the two left in 1 of 4, together 1 of 6."""
    half = registry.make("epsilon-greedy", epsilon=0.5)
    half.load({**half.state(), "theta_": np.array([3.0, 2.0, 1.0])})
    candidates, rng = Candidates("q", np.arange(3), np.eye(3)), np.random.default_rng(0)
    tries = trying([], "epsilon-greedy", seed=0)
    while not np.array_equal((drawn := half.rank(candidates, 3, rng)).order, [0, 2, 1]):
        pass
    assert np.exp(drawn.memo["log_propensity"]) == pytest.approx(1 / 6)
    tries.add(0, drawn, np.ones(3))
    assert tries.tally().drawn == 1
    assert not tries.tally().wins.any()


@pytest.mark.parametrize(
    ("exposure", "displacement", "kept"),
    [("full", 3, True), ("bounded", 1, False), ("bounded", 4, False), ("bounded", 5, True), ("shadow", 3, False)],
)
def test_propensities_are_those_of_what_is_shown(exposure: Any, displacement: int, kept: bool) -> None:
    """Bounded lists come about in several ways, so how likely the learner drew one is not how likely it is shown."""
    learner, candidates = registry.make("random"), Candidates("q", np.arange(6))
    spec = Spec(learner="random", exposure=exposure, displacement=displacement)
    for seed in range(60):
        made = choose(learner, candidates, 3, np.random.default_rng(seed), spec).impression
        assert ("log_propensity" in made.memo) == kept


# -- figures -------------------------------------------------------------------------------------------------------


def figures(learner: str, lists: int, n: int, k: int, seed: int, **options: Any) -> tuple[Estimates, dict[str, float]]:
    """What is found, and what is true."""
    pages = SessionGathering()
    tries = trying(["greedy"], learner, seed, on_impression=pages, clip=options.pop("clip", np.inf))
    liked = a_log(learner, lists, n, k, seed, tries)
    truth = {label: float((THETA[ranks] * liked).sum() / lists) for label, ranks in table_of(tries).ranks.items()}
    return estimate_policies(tries, lambda: pages, **options), truth


@pytest.mark.parametrize(
    ("options", "source"),
    [
        ({}, "swaps"),
        ({"examination": "pairs"}, "pairs"),
        ({"examination": "1,0.574,0.415,0.33"}, "given"),
        ({"examination": "1,0.574,0.415,0.33", "clip": 2.0}, "given"),
    ],
)
def test_figures_lie_near_the_truth(options: dict[str, Any], source: str) -> None:
    """Within three of their own standard errors, wherever examination comes from."""
    found, truth = figures("pdgd", 1500, 8, 4, seed=2, **options)
    assert found.source == source
    assert not found.warning
    assert found.examination / found.examination[0] == pytest.approx(THETA[:4], rel=0.25)
    assert [one.label for one in found.policies] == [LOGGED, BASE, "greedy"]
    assert (found.lists, found.drawn, found.whole) == (1500, 1500, 0)
    for one in found.policies:
        assert abs(one.value.value - truth[one.label]) < 3 * one.value.error, one
        assert one.value.low < truth[one.label] + 0.05
        assert not one.by_list
        assert np.mean(one.curve) == pytest.approx(one.by_position["ips"].value, rel=0.02) or "clip" in options
        if one.label != LOGGED:
            assert one.difference is not None
            assert abs(one.difference.value - truth[one.label] + truth[LOGGED]) < 3 * one.difference.error
    if "clip" in options:
        assert found.policies[2].value == found.policies[2].by_position["snips"]
        assert "clipping removed" in found.policies[2].value.warning


def test_whole_lists_are_estimated_as_lists_too() -> None:
    found, truth = figures("pdgd", 2000, 4, 4, seed=4)
    assert found.whole == 2000
    for one in found.policies:
        for name in ("ips", "snips"):
            estimate = one.by_list[name]
            assert abs(estimate.value - truth[one.label]) < 3.5 * estimate.error, (one.label, name)
        assert not one.by_list["ips"].warning


def test_what_is_assumed_is_told() -> None:
    """A fixed order at different queries tells nothing of examination; a given curve must reach far enough."""
    tries = trying(["random"], "base", 0, on_impression=(pages := SessionGathering()))
    for t in range(50):
        tries.add(t, shown([0, 1, 2])._replace(query=f"q{t}"), np.array([1.0, 0.0, float(t % 2)]))
    found = estimate_policies(tries, lambda: pages)
    assert (found.source, found.examination.tolist()) == ("1/rank", [1, 1 / 2, 1 / 3])
    assert "assumed" in found.warning
    assert all(found.warning in one.value.warning for one in found.policies)
    assert not estimate_policies(tries, lambda: pages, examination="1/rank").warning
    for source in ("swaps", "pairs"):
        with pytest.raises(InvalidInput):
            estimate_policies(tries, lambda: pages, examination=source)
    with pytest.raises(InvalidParameter):
        estimate_policies(tries, lambda: pages, examination="1,0.5")
    with pytest.raises(InvalidInput):
        estimate_policies(trying([], "base", 0))
