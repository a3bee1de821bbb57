"""Worlds with a production order, with few queries, with queries that come often and queries that are new."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.evaluation.metrics import mean_ndcg
from rankloop.kernels.metrics import dcg
from rankloop.lab.datasets.dataset import Dataset, Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.provenance import provenance
from rankloop.lab.runs.sweep import load_sweep
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.worlds.arrivals import Arrivals
from rankloop.lab.worlds.production import Production, labeled
from rankloop.lab.worlds.world import DataWorld, open_world, parse_world
from rankloop.learners.pairwise.offline_ranknet import OfflineRankNet

DATA = "synthetic:mq2007?queries=60&vali=20&test=20"
BASES = ["random", "feature:3", "feature", "model:10", "model:half", "reversed", "reversed:feature:3", "reversed:data"]
WORLDS = ["stationary", "swap", "piecewise?every=50", "drift?period=80", "recurring?every=30&tastes=3"]


@pytest.fixture(scope="module")
def split() -> Split:
    return open_split(DATA)


def opened(spec: str, dataset: Dataset, seed: int = 0) -> DataWorld:
    world = open_world(spec, dataset, seed=seed)
    assert isinstance(world, DataWorld)
    return world


def base(name: str) -> str:
    return f"stationary?base={name}"


def queries_of(world: DataWorld, rounds: int, seed: int = 0) -> list[str]:
    streams = Rng(seed)
    return [world.at(t, streams.for_event("world", t)).candidates.query for t in range(rounds)]


def each_query(dataset: Dataset, values: Array) -> list[Array]:
    return np.split(values, dataset.offsets[1:-1])


# -- the order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BASES)
def test_the_same_documents_stand_in_another_order(split: Split, name: str) -> None:
    for part in (split.train, split.test):
        ordered = opened(base(name), split.train, seed=4).in_base_order(part)
        assert ordered.offsets is part.offsets
        moved = 0
        for q in range(len(part)):
            was, now = part.candidates(q), ordered.candidates(q)
            assert was.features is not None
            assert now.features is not None
            assert sorted(now.items.tolist()) == was.items.tolist()
            assert now.features.tobytes() == was.features[now.items].tobytes()  # a document keeps its id and features
            assert ordered.grades_of(q).tolist() == part.grades_of(q)[now.items].tolist()
            moved += now.items.tolist() != was.items.tolist()
        assert moved > len(part) / 2


@pytest.mark.parametrize("part", ["train", "vali", "test"])
def test_a_feature_orders_every_part(split: Split, part: str) -> None:
    ordered = opened(base("feature:3"), split.train).in_base_order(split.parts[part])
    assert all((np.diff(values) <= 0).all() for values in each_query(ordered, ordered.features[:, 2]))
    ordered = opened(base("reversed:feature:3"), split.train).in_base_order(split.parts[part])
    assert all((np.diff(values) >= 0).all() for values in each_query(ordered, ordered.features[:, 2]))


@pytest.mark.parametrize(("name", "queries"), [("model:10", 10), ("model:half", 30)])
def test_a_model_is_fitted_on_so_many_labeled_queries_and_orders_every_part(
    split: Split, name: str, queries: int
) -> None:
    chosen = labeled(split.train, queries, seed=4)
    assert len(set(chosen.tolist())) == queries
    rows = np.concatenate([np.arange(split.train.offsets[q], split.train.offsets[q + 1]) for q in chosen])
    lengths = np.diff(split.train.offsets)[chosen]
    model = OfflineRankNet(ridge=0.01)
    model.fit(split.train.features[rows], split.train.grades[rows], np.append(0, np.cumsum(lengths)))
    for part in (split.train, split.test):
        ordered = opened(base(name), split.train, seed=4).in_base_order(part)
        assert all((np.diff(values) <= 1e-12).all() for values in each_query(ordered, ordered.features @ model.theta_))


@pytest.mark.parametrize("name", ["feature", "model:10"])
def test_only_the_grades_of_labeled_queries_are_looked_at(split: Split, name: str) -> None:
    told = labeled(split.train, 10, seed=4)
    grades = split.train.grades.copy()
    for q in set(range(len(split.train))) - set(told.tolist()):
        grades[split.train.offsets[q] : split.train.offsets[q + 1]] = grades[split.train.offsets[q] :][:1]
    # The others have one grade each now, which makes them useless to label: the same ten are the only ones left.
    other = replace(split.train, grades=grades, _candidates={})
    assert set(labeled(other, 10, seed=9).tolist()) == set(told.tolist())
    first, same = (Production(name, train, 4).order(split.test) for train in (split.train, other))
    assert first.item_ids().tolist() == same.item_ids().tolist()


def test_better_informed_rankers_are_better_also_held_out(split: Split) -> None:
    def worth(name: str) -> float:
        found = []
        for seed in range(4):
            ordered = opened(base(name), split.train, seed=seed).in_base_order(split.test)
            found.append(mean_ndcg(-np.arange(len(ordered.grades), dtype=np.float64), ordered.grades, ordered.offsets))
        return float(np.mean(found))

    names = ("reversed", "random", "feature", "model:10", "model:half")
    values = [worth(name) for name in names]
    assert values == sorted(values)
    assert values[0] < 0.1  # worst first


def test_equal_documents_stand_at_random_and_never_by_their_grades() -> None:
    n, queries = 20, 300
    grades = np.tile(np.arange(n) // 10, queries)  # the file has the bad ones first
    flat = Dataset("flat", np.ones((n * queries, 2)), grades, np.arange(0, n * queries + 1, n), np.arange(queries))
    for name in ("feature:1", "reversed:feature:1", "random"):
        ordered = Production(name, flat, seed=1).order(flat)
        first = np.array([ordered.grades_of(q)[0] for q in range(queries)])
        assert abs(first.mean() - 0.5) < 4 * 0.5 / queries**0.5


@pytest.mark.parametrize("world", WORLDS)
def test_every_world_has_a_production_order_by_the_grades_of_its_first_round(split: Split, world: str) -> None:
    joint = "&" if "?" in world else "?"
    worst = opened(f"{world}{joint}base=reversed", split.train)
    for part in (worst.dataset, worst.in_base_order(split.test)):
        assert all((np.diff(grades) >= 0).all() for grades in each_query(part, worst.grades(part, 0)))
    streams = Rng(0)
    for t in range(20):  # what users are shown first is what the data world says
        came = worst.at(t, streams.for_event("world", t))
        assert (
            came.candidates.items.tolist()
            == worst.dataset.candidates(_number(split, came.candidates.query)).items.tolist()
        )


def _number(split: Split, query: str) -> int:
    return [str(name) for name in split.train.queries].index(query)


# -- in runs -------------------------------------------------------------------------------------------------------


def test_the_base_learner_serves_the_production_order_online_and_held_out(split: Split) -> None:
    record = run(Trial("base", DATA, rounds=50, world=base("model:10"), seed=3, evaluations=1), split)
    world = opened(base("model:10"), split.train, seed=3)
    part = world.in_base_order(split.test)
    expected = mean_ndcg(-np.arange(len(part.grades), dtype=np.float64), part.grades, part.offsets)
    assert record.last("offline.ndcg@10") == pytest.approx(expected)
    streams, shown = Rng(3), []
    for t in range(50):
        came = world.at(t, streams.for_event("world", t))
        shown.append(dcg(came.grades[:10], 10) / came.ideal if came.ideal else 0.0)
    assert record.last("online.ndcg") == pytest.approx(np.mean(shown))


def test_measures_are_there_at_any_checkpoint(split: Split) -> None:
    trial = Trial("pdgd", DATA, rounds=200, evaluations=1, checkpoints=(50, 120))
    record = run(trial, split)
    assert record.at.tolist() == [50, 120, 200]
    assert record.measures["online.ndcg"] == pytest.approx([record.ndcg[:t].mean() for t in (50, 120, 200)])
    assert len(record.measures["offline.ndcg@10"]) == 3
    assert record.rows()[0]["checkpoints"] == "50,120"
    assert "checkpoints=50+120" in trial.id
    with pytest.raises(InvalidParameter, match="checkpoints has 201"):
        replace(trial, checkpoints=(201,))


SWEEP = """
[shared]
data = "synthetic:mq2008"
rounds = 100
checkpoints = [50]
world = "stationary?base=model:10&queries=20"

[[learners]]
name = "base"
"""


def test_sweeps_take_checkpoints_and_worlds_with_options(tmp_path: Path) -> None:
    file = tmp_path / "start.toml"
    file.write_text(SWEEP)
    (trial,) = load_sweep(file).trials
    assert trial.checkpoints == (50,)
    assert trial.world == "stationary?base=model:10&queries=20"
    assert provenance(trial).code != ""
    file.write_text(SWEEP.replace("[50]", "[true]"))
    with pytest.raises(InvalidParameter, match="checkpoints has True"):
        load_sweep(file)


# -- which queries come --------------------------------------------------------------------------------------------


def test_only_so_many_queries_come_all_alike(split: Split) -> None:
    asked = queries_of(opened("stationary?queries=10", split.train, seed=1), 2000)
    names, counts = np.unique(asked, return_counts=True)
    assert len(names) == 10
    assert ((counts - 200) ** 2 / 200).sum() < 27.9  # χ² with 9 degrees of freedom exceeds it once in 1,000
    others = set(queries_of(opened("stationary?queries=10", split.train, seed=2), 2000))
    assert others != set(names)
    assert set(queries_of(opened("stationary?queries=10&seed=1", split.train, seed=2), 2000)) == set(names)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_zipf_frequencies_fall_as_they_should(exponent: float) -> None:
    rounds = 20_000
    drawn = np.random.default_rng(0).random(rounds)
    counts = np.bincount(Arrivals(50, frequency=f"zipf:{exponent}", seed=3).many(0, drawn), minlength=50)
    share = np.arange(1, 51) ** -exponent / (np.arange(1, 51) ** -exponent).sum()
    expected = np.zeros(50)
    expected[Rng(3).for_event("arrivals", 0).permutation(50)] = rounds * share
    assert ((counts - expected) ** 2 / expected).sum() < 85.4  # χ² with 49 degrees of freedom, once in 1,000


def test_fresh_queries_have_never_come_before(split: Split) -> None:
    asked = queries_of(opened("stationary?queries=12&fresh=100", split.train), 500)
    seen = [set(asked[first : first + 100]) for first in range(0, 500, 100)]
    assert all(len(some) == 12 for some in seen)
    assert len(set.union(*seen)) == 60
    with pytest.raises(InvalidParameter, match="needs 72 queries in 501 rounds, but the data has 60"):
        run(Trial("base", DATA, rounds=501, world="stationary?queries=12&fresh=100"), split)


# -- by name -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("base=best", "base is 'best'"),
        ("base=feature:0", "base is 'feature:0'"),
        ("base=feature:x", "base is 'feature:x'"),
        ("base=model", "base is 'model'"),
        ("base=model:-3", "base is 'model:-3'"),
        ("base=random:3", "base is 'random:3'"),
        ("base=reversed:reversed", "base is 'reversed:reversed'"),
        ("queries=0", "queries is '0'"),
        ("queries=half", "queries is 'half'"),
        ("frequency=often", "frequency is 'often'"),
        ("frequency=zipf:0", "frequency is 'zipf:0'"),
        ("frequency=zipf:steep", "frequency is 'zipf:steep'"),
        ("frequency=uniform:1", "frequency is 'uniform:1'"),
        ("fresh=0", "fresh is '0'"),
        ("basis=data", "has no option 'basis'"),
    ],
)
def test_malformed_options_are_named_before_data_is_opened(options: str, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        parse_world(f"stationary?{options}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("queries=61", "queries is 61, but the data has 60 to learn from"),
        ("fresh=100", "fresh=100 needs queries=…: how many come between two changes"),
        ("base=feature:47", "base is 'feature:47', but mq2007/train has 46 features"),
        ("base=model:61", r"base wants 61 labeled queries, but mq2007/train has \d+ with different grades"),
    ],
)
def test_options_that_do_not_fit_the_data_are_named(split: Split, options: str, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        open_world(f"stationary?{options}", split.train)
