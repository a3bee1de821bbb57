"""Facts of the cascading bandits, TopRank and BatchRank: lists that change, late feedback, who may teach."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from rankloop.core.compiled_rounds import ClickLoop, ClickWorld
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.registry import make
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.kernels.bandits import REGRET
from rankloop.kernels.click_models import BROWSING, CASCADE, CHAIN, POSITION, ClickParameters, expected_clicks
from rankloop.lab.runs.compiled import QUERY, best_clicks, play

ONE, TABLE = np.ones(1), np.ones((1, 1))
PER_QUERY = ["cascade-klucb", "cascade-ucb1", "toprank", "batchrank"]


def some(items: str) -> Candidates:
    return Candidates(QUERY, list(items))


def best(learner: Learner, items: str) -> str:
    page = some(items)
    return "".join(page.items[learner.best(page, page.n)])


def teach(learner: Learner, items: str, liked: str, rounds: int, k: int | None = None, seed: int = 1) -> None:
    """Users who leave with the first item they like."""
    rng, page = np.random.default_rng(seed), some(items)
    for _ in range(rounds):
        shown = learner.rank(page, k or page.n, rng)
        clicks = np.isin(shown.items, list(liked)).astype(float)
        clicks[int(clicks.argmax()) + 1 :] = 0.0
        learner.learn(shown, Feedback.clicks(clicks), rng)


# -- all of them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PER_QUERY)
def test_a_liked_item_that_comes_later_is_found(name: str) -> None:
    learner = make(name, horizon=100) if name == "batchrank" else make(name)
    teach(learner, "abcd", "b", 1500, k=2)
    assert best(learner, "abcd")[0] == "b"
    teach(learner, "abcdx", "x", 4000 if name == "batchrank" else 1500, k=2, seed=2)
    assert best(learner, "abcdx").index("x") <= (1 if name == "batchrank" else 0)  # BatchRank never takes back a cut


@pytest.mark.parametrize("name", PER_QUERY)
def test_an_item_that_is_gone_keeps_what_is_known_of_it(name: str) -> None:
    learner = make(name, horizon=100) if name in ("toprank", "batchrank") else make(name)
    teach(learner, "abc", "c", 1000)
    assert best(learner, "abc")[0] == "c"
    teach(learner, "ab", "", 50)
    assert best(learner, "abc")[0] == "c"
    assert sorted(best(learner, "ab")) == ["a", "b"]


@pytest.mark.parametrize("name", PER_QUERY)
def test_candidates_beyond_the_bound_stand_below_in_base_order(name: str) -> None:
    learner, rng, page = make(name, max_items=3), np.random.default_rng(1), some("abcdefg")
    for _ in range(30):
        shown = learner.rank(page, 6, rng)
        assert shown.order[3:].tolist() == [3, 4, 5]
        assert learner.best(page, 7)[3:].tolist() == [3, 4, 5, 6]
        learner.learn(shown, Feedback.clicks(rng.integers(0, 2, 6)), rng)
    assert set(learner.queries_.items(0).tolist()) <= set(_codes("abcdef"))  # type: ignore[attr-defined]


def _codes(items: str) -> list[int]:
    from rankloop.learners.query_table import item_codes

    codes: list[int] = item_codes(np.array(list(items))).tolist()
    return codes


@pytest.mark.parametrize(
    ("name", "rounds"), [("cascade-klucb", 1), ("cascade-ucb1", 1), ("toprank", 0), ("batchrank", 0)]
)
def test_who_learns_from_lists_that_someone_else_ordered(name: str, rounds: int) -> None:
    """A cascading bandit observes an item wherever it comes from; the others compare items that were drawn by lot."""
    learner = make(name)
    adopted = learner.adopt(some("abc"), np.array([1, 0]))
    learner.learn(adopted, Feedback.clicks([0, 1]), np.random.default_rng(0))
    table = learner.queries_  # type: ignore[attr-defined]
    assert table.rounds(table.find(QUERY)) == rounds


@pytest.mark.parametrize("name", PER_QUERY)
@pytest.mark.slow
def test_the_best_list_is_learned_whatever_users_do(name: str) -> None:
    """Well-parted attractions, both kinds of users; the cascading bandits have no such promise in the second."""
    attraction = np.array([0.1, 0.9, 0.3, 0.6])
    reader = ClickParameters(CASCADE, attraction, np.zeros(4), ONE, 1.0, TABLE)
    looker = ClickParameters(POSITION, attraction, ONE, ONE, 1.0, np.array([[1.0], [0.7], [0.5], [0.4]]))
    for user in (reader, looker) if name in ("toprank", "batchrank") else (reader,):
        learner = make(name)
        play(learner, user, [200_000], seed=2)
        assert learner.best(Candidates(QUERY, np.arange(4)), 4).tolist() == [1, 3, 2, 0]


# -- cascading bandits ---------------------------------------------------------------------------------------------


def test_items_that_nobody_has_looked_at_are_tried_in_base_order_if_one_wants_that() -> None:
    learner, page = make("cascade-klucb", ties="base"), some("abcdef")
    assert learner.rank(page, 3, np.random.default_rng(5)).items.tolist() == ["a", "b", "c"]
    learner.learn(learner.adopt(page, np.arange(3)), Feedback.clicks([0, 0, 0]), np.random.default_rng(0))
    assert learner.rank(page, 3, np.random.default_rng(5)).items.tolist() == ["d", "e", "f"]


def test_a_wrong_count_is_refused() -> None:
    learner = make("cascade-ucb1")
    teach(learner, "abc", "b", 5)
    state = learner.state()
    state["wins_"][0] = state["shows_"][0] + 1
    with pytest.raises(InvalidInput, match="wins_"):
        learner.load(state)


# -- TopRank and BatchRank -----------------------------------------------------------------------------------------


def test_toprank_counts_a_settled_pair_no_more_and_feedback_by_the_blocks_of_its_list() -> None:
    learner: Any = make("toprank", horizon=2)
    page, rng = some("ab"), np.random.default_rng(1)
    early = [learner.rank(page, 2, rng) for _ in range(3)]  # all in one block
    teach(learner, "ab", "b", 60)
    leads, duels = learner.queries_.values(0)
    settled = (int(leads[0]), int(duels[0]))
    assert abs(settled[0]) == settled[1] < 60  # the pair was settled on the way, and the lists since do not count
    assert learner.rank(page, 2, rng).memo["blocks"].tolist() == [0, 1]
    for shown in early:
        learner.learn(shown, Feedback.clicked(shown, ["a"]), rng)
    assert (int(leads[0]), int(duels[0])) == settled


def test_batchrank_ignores_feedback_of_a_stage_that_is_over() -> None:
    learner: Any = make("batchrank", horizon=3)  # 18 displays an item in the first stage
    page, rng = some("ab"), np.random.default_rng(1)
    early = [learner.rank(page, 2, rng) for _ in range(30)]
    for shown in early[:18]:
        learner.learn(shown, Feedback.clicks([0, 0]), rng)
    homes, _, stages, _, shows, wins, _ = learner.queries_.values(0)
    assert (homes.tolist(), stages.tolist(), shows.tolist()) == ([0, 0], [1, 1], [0, 0])
    for shown in early[18:]:
        learner.learn(shown, Feedback.clicks([1, 1]), rng)
    assert (shows.tolist(), wins.tolist()) == ([0, 0], [0, 0])
    learner.learn(learner.rank(page, 2, rng), Feedback.clicks([1, 1]), rng)
    assert (shows.tolist(), wins.tolist()) == ([1, 1], [1, 1])


def test_batchrank_does_not_wait_for_an_item_that_is_gone() -> None:
    learner: Any = make("batchrank", horizon=3)
    teach(learner, "abc", "a", 5)
    teach(learner, "ab", "a", 40)
    homes = dict(
        zip("abc", learner.queries_.values(0)[0][learner.queries_.numbers(0, np.array(_codes("abc")))], strict=True)
    )
    assert homes["a"] == 0
    assert homes["b"] == homes["c"] == 1  # who was not there is in the lower part


def test_a_batch_that_no_item_can_have_is_refused() -> None:
    learner = make("batchrank")
    teach(learner, "abc", "b", 5)
    state = learner.state()
    state["homes_"][1] = 3
    with pytest.raises(InvalidInput, match="homes_"):
        learner.load(state)


@pytest.mark.parametrize("name", ["bubblerank", "toprank", "batchrank"])
def test_an_impression_of_another_kind_of_learner_is_refused(name: str) -> None:
    learner, page, rng = make(name), some("abc"), np.random.default_rng(0)
    for other in ("cascade-klucb", *({"bubblerank", "toprank", "batchrank"} - {name})):
        with pytest.raises(InvalidInput, match="learn from what this kind of learner has ranked"):
            learner.learn(make(other).rank(page, 3, rng), Feedback.clicks([0, 1, 0]), rng)


# -- the compiled loop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CASCADE, CHAIN, POSITION, BROWSING])
@pytest.mark.parametrize(("m", "k", "top"), [(6, 6, 3), (6, 4, 5), (5, 5, 9)])
def test_no_list_is_better_than_the_best(kind: int, m: int, k: int, top: int) -> None:
    for seed in range(10):
        rng, work = np.random.default_rng(seed), np.zeros((3, k + 1))
        stay = np.zeros(m) if kind == CASCADE else rng.random(m)
        skip, patience = 1.0 if kind == CASCADE else rng.random(), rng.random(k)
        examination = rng.random((k, 1 if kind == POSITION else k + 1))
        user = ClickParameters(kind, rng.random(m), stay, patience, skip, examination)
        most = max(expected_clicks(user, np.array(shown), top, work) for shown in permutations(range(m), k))
        assert best_clicks(user, k, top) == pytest.approx(most, rel=1e-12)


def test_ten_documents_are_looked_through_and_thirty_are_too_many() -> None:
    rng = np.random.default_rng(2)
    user = ClickParameters(BROWSING, rng.random(10), ONE, ONE, 1.0, rng.random((10, 11)))
    shown, work = np.argsort(-user.attraction), np.zeros((3, 11))
    assert best_clicks(user, 10, 5) >= expected_clicks(user, shown, 5, work)
    with pytest.raises(InvalidParameter, match="give fewer documents or a smaller top"):
        best_clicks(user._replace(attraction=rng.random(30)), 30, 10)


def test_only_fresh_bandits_have_a_compiled_loop() -> None:
    user = ClickParameters(CASCADE, np.full(5, 0.5), np.zeros(5), ONE, 1.0, TABLE)
    with pytest.raises(InvalidParameter, match="RandomOrder has no compiled loop"):
        play(make("random"), user, [10], 0)
    with pytest.raises(InvalidParameter, match="max_items of at least 5"):
        play(make("toprank", max_items=4), user, [10], 0)
    learner = make("toprank")
    play(learner, user, [10], 0)
    with pytest.raises(InvalidParameter, match="fresh"):
        play(learner, user, [10], 0)
    with pytest.raises(InvalidParameter, match="RTopK has no compiled loop"):
        play(make("rtopk"), user, [10], 0)


class Stubborn:
    """Someone else's learner with a loop of its own: it shows the first k, and learns nothing."""

    feedback = "clicks"

    def compiled_loop(self, world: ClickWorld) -> ClickLoop:
        work, self.done = np.zeros((3, world.k + 1)), 0

        def serve(coins: Array, clicks: Array, account: Array) -> None:
            assert coins.shape[1:] == (2,)
            assert clicks.shape[1:] == (1, world.k)
            missed = world.best - expected_clicks(world.user, np.arange(world.k), world.top, work)
            account[REGRET] += missed * len(coins)

        def finish(done: int) -> None:
            self.done = done

        return ClickLoop((2,), serve, finish)


def test_anyones_learner_may_have_a_compiled_loop() -> None:
    user, learner = ClickParameters(CASCADE, np.array([0.1, 0.5]), np.zeros(2), ONE, 1.0, TABLE), Stubborn()
    outcome = play(learner, user, [30, 100], 0, top=1, chunk=20)  # type: ignore[arg-type]
    assert outcome.regret == pytest.approx([0.4 * 30, 0.4 * 100])
    assert learner.done == 100


@pytest.mark.parametrize(
    ("name", "params", "what"),
    [
        ("bubblerank", {"horizon": 1}, "horizon is 1"),
        ("bubblerank", {"delta": 2}, "delta is 2"),
        ("bubblerank", {"max_items": 0}, "max_items is 0"),
        ("toprank", {"max_queries": 2.5}, "max_queries is 2.5"),
        ("toprank", {"horizon": 1}, "horizon is 1"),
        ("batchrank", {"variant": "real"}, "variant is 'real'"),
        ("cascade-klucb", {"variant": "merge"}, "variant is 'merge'"),
        ("cascade-ucb1", {"observe": "all"}, "observe is 'all'"),
        ("cascade-ucb1", {"ties": "first"}, "ties is 'first'"),
    ],
)
def test_wrong_parameters_are_named(name: str, params: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidParameter, match=what):
        make(name, **params)
