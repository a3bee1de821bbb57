"""The baseline of benchmarks/weekly.py: trees that are retrained, and a learner on top of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="the retrained trees are LightGBM's; pip install -c constraints.txt lightgbm")

from benchmarks import weekly_table
from benchmarks.weekly import LABELS, LEAST_PROPENSITY, Pair, Shown, Weekly

from rankloop import registry
from rankloop.errors import InvalidInput, InvalidParameter
from rankloop.lab.data.dataset import Split
from rankloop.lab.data.sources import open_split
from rankloop.lab.runs.probes import held_out
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.users.registry import open_user
from rankloop.lab.worlds.world import DataWorld, open_world
from rankloop.learner import clone
from rankloop.streams import Streams
from rankloop.types import Array, Candidates, Feedback

QUICK: dict[str, Any] = {"every": 100, "trees": 10, "leaves": 7, "rate": 0.1, "least": 20}
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def split() -> Split:
    return open_split("synthetic:mq2008?queries=40&vali=5&test=20")


def world_of(split: Split) -> DataWorld:
    world = open_world("stationary?base=random", split.train, seed=1)
    assert isinstance(world, DataWorld)
    return world


def served(learner: Weekly, split: Split, rounds: int) -> Weekly:
    for _ in simulate(learner, world_of(split), open_user("perfect", 2), rounds, seed=1):
        pass
    return learner


def shown(clicks: list[int], query: str = "q", items: list[int] | None = None) -> Shown:
    k = len(clicks)
    return Shown(query, np.array(items or range(k)), np.arange(k * 2.0).reshape(k, 2), np.array(clicks, dtype=float))


# -- trees ---------------------------------------------------------------------------------------------------------


def test_until_the_first_training_it_is_the_production_order(split: Split) -> None:
    learner = served(Weekly(**QUICK), split, 99)
    candidates = world_of(split).dataset.candidates(3)
    assert learner.best(candidates, 10).tolist() == list(range(min(10, candidates.n)))
    assert learner.score(candidates)[0] == 1.0
    assert learner.score(candidates)[-1] == pytest.approx(0.0)


@pytest.mark.parametrize("labels", LABELS)
def test_trees_learn_from_clicks_whatever_the_labels(split: Split, labels: str) -> None:
    probe = held_out(world_of(split).in_base_order(split.test))
    before = probe(Weekly())["offline.ndcg@10"]
    learner = served(Weekly(labels=labels, **QUICK), split, 300)
    assert probe(learner)["offline.ndcg@10"] > before + 0.1


def test_the_list_changes_only_when_trees_are_trained(split: Split) -> None:
    candidates, learner = world_of(split).dataset.candidates(0), Weekly(**QUICK)
    orders = [
        learner.best(candidates, candidates.n).tolist()
        for _ in simulate(learner, world_of(split), open_user("perfect", 2), 300, seed=1)
    ]
    changed = [t + 1 for t in range(1, 300) if orders[t] != orders[t - 1]]
    assert changed
    assert set(changed) <= {100, 200, 300}


@pytest.mark.parametrize(
    "learner", [Weekly(**QUICK), Weekly("debiased", **QUICK), Pair(**QUICK), Pair(spec="pdgd", **QUICK)]
)
def test_runs_repeat_and_go_on_after_loading_bit_for_bit(split: Split, learner: Weekly) -> None:
    whole, halves = served(clone(learner), split, 220), clone(learner)
    streams, world, user = Streams(1), world_of(split), open_user("perfect", 2)
    for t in range(220):
        if t == 120:  # a model and a log with something that no model has seen yet
            halves, before = clone(learner), halves.state()
            halves.load(before)
        came = world.at(t, streams.at("world", t))
        given = halves.rank(came.candidates, 10, streams.at("rank", t))
        halves.learn(given, user.react(came.grades[given.order], streams.at("user", t)), streams.at("learn", t))
    assert _bits(halves) == _bits(whole)
    assert whole.state()["model_"].size


def _bits(learner: Weekly) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in learner.state().items()}


def test_an_empty_state_loads_and_a_strange_one_does_not() -> None:
    learner = Weekly()
    learner.load(Weekly().state())
    assert learner.best(Candidates(features=np.eye(3)), 3).tolist() == [0, 1, 2]
    with pytest.raises(InvalidInput, match=r"state has \['theta_'\], but Weekly learns"):
        learner.load({"theta_": np.zeros(3)})


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("raw", [([0, 1, 0, 0], 1.0)]),
        ("examined", [([0, 1, 0], 1.0)]),  # the last was perhaps not seen
        ("debiased", [([1, 0, 0, 0], 2.0)]),  # rank 2 is looked at half as often
    ],
)
def test_labels_by_hand(labels: str, expected: list[tuple[list[int], float]]) -> None:
    log = [shown([0, 1, 0, 0]), shown([0, 0, 0, 0]), shown([1, 1, 1, 1])]  # the others prefer nothing
    learner = Weekly(labels=labels, eta=1.0)
    groups = learner._groups(log, learner._propensities(log))
    assert [(clicks.tolist(), weight) for _, clicks, weight in groups] == expected
    rows = groups[0][0]
    assert rows[:2].tolist() == ([[2.0, 3.0], [0.0, 1.0]] if labels == "debiased" else [[0.0, 1.0], [2.0, 3.0]])


def test_each_click_of_a_list_is_a_debiased_example() -> None:
    learner, log = Weekly(labels="debiased", eta=1.0), [shown([1, 0, 1, 0])]
    groups = learner._groups(log, learner._propensities(log))
    assert [(clicks.tolist(), weight) for _, clicks, weight in groups] == [
        ([1, 0, 0], 1.0),
        ([1, 0, 0], pytest.approx(3)),
    ]


def test_examined_lists_clicked_from_the_top_down_prefer_what_was_clicked_to_the_next() -> None:
    groups = Weekly(labels="examined")._groups([shown([1, 1, 0, 0])], np.ones(4))
    assert [clicks.tolist() for _, clicks, _ in groups] == [[1, 1, 0]]


def test_propensities_come_from_documents_that_moved() -> None:
    log = [shown([1, 0, 0], items=[0, 1, 2])] * 8 + [shown([0, 1, 0], items=[1, 0, 2])] * 4
    log += [shown([0, 0, 0], items=[1, 0, 2])] * 4
    log += [shown([1, 0, 0], items=[1, 0, 2])] * 8 + [shown([0, 1, 0], items=[0, 1, 2])] * 4
    found = Weekly(labels="debiased")._propensities(log)
    assert found[0] == 1.0
    assert 0.2 < found[1] < 0.8
    assert found[2] == found[1]  # nothing moved there: like the one above
    low = Weekly(labels="debiased", eta=3.0)._propensities([shown([0] * 10)])
    assert low.min() == LEAST_PROPENSITY


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"labels": "all"}, "labels is 'all'; it must be one of raw, examined, debiased"),
        ({"every": 0}, "every is 0; it must be a whole number of at least 1"),
        ({"rate": 0}, "rate is 0; it must be above 0"),
        ({"eta": -1}, "eta is -1; it must be at least 0"),
    ],
)
def test_bad_parameters_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Weekly(**given)


# -- and a learner on top ------------------------------------------------------------------------------------------


def test_on_top_comes_the_order_of_the_trees_with_their_score(split: Split) -> None:
    pair = Pair(spec="base", **QUICK)
    served(pair, split, 150)
    candidates = world_of(split).dataset.candidates(2)
    assert pair.best(candidates, 10).tolist() == pair.order(candidates)[:10].tolist()
    assert pair.order(candidates).tolist() != list(range(candidates.n))
    order, above, score = pair._above(candidates)
    assert above.features is not None
    assert candidates.features is not None
    assert above.items.tolist() == candidates.items[order].tolist()
    assert above.features[:, :-1].tobytes() == candidates.features[order].tobytes()
    assert above.features[:, -1].tobytes() == score.tobytes()
    assert (np.diff(score) <= 0).all()


def test_the_learner_on_top_is_told_of_its_own_list() -> None:
    told: list[tuple[Array, Array]] = []
    pair = Pair(spec="pdgd")
    learn = pair._top.learn

    def watch(impression: Any, feedback: Feedback, rng: np.random.Generator) -> None:
        told.append((impression.order, impression.features))
        learn(impression, feedback, rng)

    pair._top.learn = watch  # type: ignore[method-assign]
    candidates = Candidates("q", [5, 6, 7, 8], np.eye(4))
    given = pair.rank(candidates, 3, RNG)
    assert candidates.items[given.order].tolist() == given.items.tolist()
    assert given.features is not None
    assert given.features.shape == (3, 4)  # the caller's features, without the score
    pair.learn(given, Feedback.clicks([0, 1, 0]), RNG)
    ((order, rows),) = told
    assert order.tolist() == given.order.tolist()  # the trees have no model yet: their order is the caller's
    assert rows[:, -1].tolist() == [0.0, 0.0, 0.0]  # and their score nobody's


def test_a_query_is_scored_by_trees_that_have_not_seen_it(split: Split) -> None:
    """Two folds: what one query's clicks teach changes the scores of the other fold's queries alone."""
    learner = Weekly(labels="raw", folds=2, **QUICK)
    served(learner, split, 120)
    folds = [learner._fold(query) for query in split.train.queries.tolist()]
    assert set(folds) == {0, 1}
    again = clone(learner)
    again.load(learner.state())
    of_one = [i for i, entry in enumerate(learner._log) if learner._fold(entry.query) == 1 and entry.clicks.sum() > 0]
    for i in of_one:  # every list of fold 1 is clicked the other way round
        again._log[i] = again._log[i]._replace(clicks=1.0 - again._log[i].clicks)
    for either in (learner, again):
        groups = [[entry for entry in either._log if either._fold(entry.query) != fold] for fold in (0, 1)]
        either._use([either._trained(either._groups(part, np.ones(0))) for part in groups])
    assert learner._models[1] == again._models[1]  # trained without fold 1
    assert learner._models[0] != again._models[0]


def test_a_pair_adopts_a_list_in_the_positions_of_the_caller(split: Split) -> None:
    pair = Pair(**QUICK)
    served(pair, split, 120)
    candidates = world_of(split).dataset.candidates(1)
    given = pair.adopt(candidates, np.array([3, 0, 2]))
    assert given.order.tolist() == [3, 0, 2]
    assert given.items.tolist() == candidates.items[[3, 0, 2]].tolist()
    assert pair.order(candidates)[given.memo["pair_order"]].tolist() == [3, 0, 2]
    pair.learn(given, Feedback.clicks([0, 0, 1]), RNG)


def test_the_learner_on_top_takes_parameters() -> None:
    name, parameters = registry.parse_learner("benchmarks.weekly:Pair?spec=pairrank?alpha=0.3;prior=3&labels=examined")
    pair = registry.make(name, **parameters)
    assert isinstance(pair, Pair)
    assert (pair._top.alpha, pair._top.prior, pair.labels) == (0.3, 3, "examined")  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="spec is 'rtopk', which learns from grades; a pair needs clicks"):
        Pair(spec="rtopk")


# -- the table -----------------------------------------------------------------------------------------------------


def test_the_command_prints_its_tables_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--data", "synthetic:mq2008?test=10,nowhere", "--users", "perfect", "--recur", "10", "--lists", "100,1000"]
    asked += ["--seeds", "3-4", "--out", str(tmp_path / "weekly.parquet")]
    weekly_table.main([*asked, "--learners", "weekly?every=100&trees=5,base"])
    out, told = capsys.readouterr()
    assert "skipped: nowhere is not here" in told
    assert told.count(" finished ") == 4
    assert out.count("weekly?every=100&trees=5") == out.count("| base ") == 3  # a row in each of three tables
    assert "100 × 10" in out
    assert "held-out 1,000" in out
    assert "first 50" in out
    drawn = tmp_path / "shown.png"
    weekly_table.main([*asked, "--learners", "weekly?every=100&trees=5,base", "--figure", str(drawn)])
    again, told = capsys.readouterr()
    assert again == out
    assert "finished" not in told
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert "production" in drawn.with_suffix(".svg").read_text("utf-8")  # the legend says `base` so


def test_thousands_are_means_of_their_own() -> None:
    run: Any = {1000: {"online.ndcg": 0.5}, 2000: {"online.ndcg": 0.6}}
    assert weekly_table._thousand(1000, run) == pytest.approx(0.5)
    assert weekly_table._thousand(2000, run) == pytest.approx(0.7)


def test_queries_come_more_often_where_the_data_has_fewer(tmp_path: Path) -> None:
    assert weekly_table.located("synthetic:mq2008", 500) == ("synthetic:mq2008?queries=500", 500)
    assert weekly_table.located("synthetic:mq2008?queries=50&seed=1", 500) == ("synthetic:mq2008?queries=50&seed=1", 50)
    assert weekly_table.located(str(tmp_path / "none"), 500) is None
