"""rankloop as a library: frames, numpy's numbers, many at once, scores, scaled features, names without imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankloop
from rankloop import Candidates, Feedback, learners
from rankloop.core import learner, registry
from rankloop.core.errors import InvalidInput, InvalidParameter, RankloopWarning
from rankloop.core.types import Array
from rankloop.learners.models import confidence, long_lists

# -- frames --------------------------------------------------------------------------------------------------------

COLUMNS: dict[str, list[Any]] = {"doc_id": ["a", "b", "c"], "bm25": [7, 3, 5], "price": [1.5, 2.5, 0.0]}
ROWS = [[7.0, 1.5], [3.0, 2.5], [5.0, 0.0]]


def frames() -> list[Any]:
    """The makers of frames that are installed: name and function."""
    found = []
    for library, maker in [("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")]:
        found.append(pytest.param(library, maker, id=library))
    return found


@pytest.mark.parametrize(("library", "maker"), frames())
def test_frames_are_taken_as_they_are(library: str, maker: str) -> None:
    made: Any = getattr(pytest.importorskip(library), maker)
    frame = made(COLUMNS)
    numbers = made({name: COLUMNS[name] for name in ("bm25", "price")})
    for candidates in (
        Candidates("q", frame["doc_id"], numbers),
        Candidates.from_frame(frame, "q", id="doc_id"),
        Candidates.from_frame(frame, "q", id="doc_id", features=["bm25", "price"]),
    ):
        assert candidates.items.tolist() == ["a", "b", "c"]
        assert candidates.features is not None
        assert candidates.features.tolist() == ROWS
    assert Candidates("q", frame["bm25"]).items.tolist() == [7, 3, 5]
    swapped = Candidates.from_frame(frame, features=["price", "bm25"])
    assert swapped.features is not None
    assert swapped.features[0].tolist() == [1.5, 7.0]
    assert swapped.items.tolist() == [0, 1, 2]
    assert Candidates.from_frame(made({"doc_id": ["x", "y"]}), id="doc_id").features is None


@pytest.mark.parametrize(("library", "maker"), frames())
def test_what_is_wrong_with_a_frame_is_named(library: str, maker: str) -> None:
    made: Any = getattr(pytest.importorskip(library), maker)
    with pytest.raises(InvalidInput, match="no column 'prize'"):
        Candidates.from_frame(made(COLUMNS), id="doc_id", features=["prize"])
    with pytest.raises(InvalidInput, match="column 'doc_id' does not hold numbers"):
        Candidates.from_frame(made(COLUMNS))
    with pytest.raises(InvalidInput, match=r"features\[1, 0\] is nan"):
        Candidates.from_frame(made({"bm25": [1.0, None]}))
    with pytest.raises(InvalidInput, match=r"items\[1\] is .*: missing"):
        Candidates("q", made({"doc_id": ["a", None]})["doc_id"])
    with pytest.raises(InvalidInput, match="item 'a' occurs twice"):
        Candidates("q", made({"doc_id": ["a", "a"]})["doc_id"])


def test_a_categorical_column_and_an_index_are_ids() -> None:
    pandas = pytest.importorskip("pandas")
    assert Candidates("q", pandas.Series(["b", "a"], dtype="category")).items.tolist() == ["b", "a"]
    assert Candidates("q", pandas.Index([4, 2])).items.tolist() == [4, 2]
    flags = pandas.DataFrame({"fresh": [True, False], "price": [1.0, 2.0]})
    assert Candidates("q", features=flags).features is not None
    with pytest.raises(InvalidInput, match="a list has no named columns"):
        Candidates.from_frame([1, 2])


# -- numpy's numbers -----------------------------------------------------------------------------------------------


def test_numpy_scalars_are_parameters() -> None:
    given: dict[str, Any] = {
        "alpha": np.float32(0.5),
        "prior": np.int64(3),
        "examine_next": np.bool_(False),
        "explore": np.str_("blocks"),
    }
    made = registry.make("pairrank", **given)
    assert rankloop.params(made) == rankloop.params(
        registry.make("pairrank", alpha=0.5, prior=3, examine_next=False, explore="blocks")
    )
    assert json.loads(json.dumps(rankloop.params(made)))["alpha"] == 0.5
    direct = learners.PairRank(**given)
    assert rankloop.params(rankloop.loads(rankloop.dumps(direct))) == rankloop.params(made)
    assert registry.make("olranknet", width=np.int64(4)).width == 4  # type: ignore[attr-defined]
    wrong: Any
    for wrong in (np.float32("nan"), np.array([1.0]), np.bool_(True), np.float64("inf")):
        with pytest.raises(InvalidParameter, match=r"alpha is .* must be a finite number"):
            learners.PairRank(alpha=wrong)
    with pytest.raises(InvalidParameter, match=r"width is .*2.5.* must be a whole number"):
        registry.make("olranknet", width=np.float64(2.5))


# -- names ---------------------------------------------------------------------------------------------------------


def test_public_names_exist_and_importing_rankloop_loads_no_numpy() -> None:
    code = "import sys, rankloop; assert 'numpy' not in sys.modules; from rankloop import PairRank, make, learners"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stderr == ""
    for module in (rankloop, learners):
        for name in module.__all__:
            assert getattr(module, name) is not None
        assert set(module.__all__) <= set(dir(module))
        with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
            module.Nothing  # noqa: B018


def test_every_learner_class_is_public() -> None:
    assert set(learners.__all__) == {entry.path.partition(":")[2] for entry in registry.LEARNERS.values()}


@pytest.mark.slow
def test_type_checkers_report_misspelled_public_names(tmp_path: Path) -> None:
    lines = {
        "rankloop.make('pairrank').best(rankloop.Candidates('q', [1]), 1)": "",
        "rankloop.PairRank(alpha=0.1)": "",
        "rankloop.learners.Hybrid()": "",
        "rankloop.PariRank": "attr-defined",
        "rankloop.learners.PariRank": "attr-defined",
        "rankloop.PairRank(alpah=0.1)": "call-arg",
    }
    file = tmp_path / "names.py"
    file.write_text("\n".join(["import rankloop", *lines]))
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
    source = {"MYPYPATH": str(Path(rankloop.__file__).parents[1])}
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **source}, capture_output=True, text=True, check=False
    )
    found = {int(number): code for number, code in re.findall(r"names.py:(\d+): error: .*\[(.*)\]", done.stdout)}
    assert found == {number: code for number, code in enumerate(lines.values(), 2) if code}, done.stdout


# -- many at once --------------------------------------------------------------------------------------------------


def queries(count: int, rng: np.random.Generator) -> list[Candidates]:
    return [Candidates(f"q{i % 3}", features=rng.random((7, 3))) for i in range(count)]


@pytest.mark.parametrize("name", ["pairrank", "pdgd", "dbgd", "bubblerank"])
def test_many_at_once_are_the_loop(name: str) -> None:
    """Bit for bit, and with the generator left where the loop leaves it."""
    lists = queries(20, np.random.default_rng(0))
    many, one = registry.make(name), registry.make(name)
    rng, other = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(3):
        shown = rankloop.rank_many(many, iter(lists), 4, rng)
        expected = [one.rank(candidates, 4, other) for candidates in lists]
        assert [s.order.tolist() for s in shown] == [e.order.tolist() for e in expected]
        clicks = [Feedback.clicks((s.order % 3 == 0).astype(float)) for s in shown]
        rankloop.learn_many(many, shown, clicks, rng)
        for impression, feedback in zip(expected, clicks, strict=True):
            one.learn(impression, feedback, other)
    assert rankloop.dumps(many) == rankloop.dumps(one)
    assert rng.random() == other.random()


def test_a_learner_may_have_a_faster_way() -> None:
    class Fast(learners.PairRank):
        def rank_many(self, candidates: Any, k: int, rng: np.random.Generator) -> list[Any]:  # noqa: ARG002
            return ["fast"]

        def learn_many(self, impressions: Any, feedbacks: Any, rng: np.random.Generator) -> None:  # noqa: ARG002
            self.model_.theta_ = np.ones(3)

    made = Fast()
    assert [str(one) for one in rankloop.rank_many(made, [], 3, 0)] == ["fast"]
    rankloop.learn_many(made, [], [], 0)
    assert made.theta_.tolist() == [1.0] * 3


def test_seeds_and_generators() -> None:
    lists, made = queries(3, np.random.default_rng(0)), registry.make("pairrank")
    by_seed = rankloop.rank_many(made, lists, 5, 3)
    by_generator = rankloop.rank_many(made, lists, 5, np.random.default_rng(3))
    assert [s.order.tolist() for s in by_seed] == [s.order.tolist() for s in by_generator]
    for wrong in (-1, 0.5, None, True, np.random.RandomState(0)):
        with pytest.raises(InvalidInput, match=r"rng is .*"):
            rankloop.rank_many(made, lists, 5, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="3 impressions but 1 feedbacks"):
        rankloop.learn_many(made, by_seed, [Feedback.clicks([1])], 0)


@pytest.mark.parametrize("name", ["pairrank", "pdgd", "dm2l", "rtopk", "olranknet", "neural-pdgd"])
def test_best_shows_the_highest_scores(name: str) -> None:
    rng, made = np.random.default_rng(0), registry.make(name)
    for candidates in queries(30, rng):
        shown = made.rank(candidates, 5, rng)
        assert shown.features is not None
        values = (shown.features[:, 0] > 0.5).astype(float)
        made.learn(shown, Feedback(made.feedback, values), rng)
    candidates = queries(1, rng)[0]
    scores = rankloop.score(made, candidates)
    assert scores.shape == (7,)
    assert scores.std() > 0
    assert made.best(candidates, 7).tolist() == np.argsort(-scores, kind="stable").tolist()


def test_who_has_no_scores_says_so() -> None:
    with pytest.raises(InvalidInput, match="BubbleRank has no scores"):
        rankloop.score(registry.make("bubblerank"), Candidates("q", [1, 2]))


# -- raw features --------------------------------------------------------------------------------------------------


def raw_lists(count: int, rng: np.random.Generator) -> list[Array]:
    """BM25, a price, a flag and a rate: what a shop has, as it has it."""
    return [
        np.column_stack([rng.gamma(3, 5, 20), 10 ** rng.uniform(1, 4, 20), rng.integers(0, 2, 20), rng.beta(1, 20, 20)])
        for _ in range(count)
    ]


def learned_ndcg(name: str, scale: bool, seed: int) -> float:
    """NDCG@5 of the best lists after 400 rounds of users who like relevant, fresh and often bought things."""
    rng, made = np.random.default_rng(seed), registry.make(name)

    def worth(rows: Array) -> Array:
        return np.asarray(rows[:, 0] / 15 + rows[:, 2] + 20 * rows[:, 3] - np.log10(rows[:, 1]) / 2)

    def candidates(rows: Array) -> Candidates:
        return rankloop.scaled(Candidates(features=rows)) if scale else Candidates(features=rows)

    for rows in raw_lists(400, rng):
        good = worth(rows) >= np.sort(worth(rows))[-5]
        shown = made.rank(candidates(rows), 10, rng)
        made.learn(shown, Feedback.clicks(good[shown.order] & (rng.random(10) < 0.8)), rng)
    found, discounts = [], 1 / np.log2(np.arange(2, 7))
    for rows in raw_lists(100, rng):
        good = worth(rows) >= np.sort(worth(rows))[-5]
        found.append((good[made.best(candidates(rows), 5)] * discounts).sum() / discounts.sum())
    return float(np.mean(found))


@pytest.mark.parametrize("name", ["pairrank", "greedy"])
def test_scaled_features_teach_better(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "_warned", {"unscaled"})
    raw, scaled = (np.mean([learned_ndcg(name, scale, seed) for seed in range(2)]) for scale in (False, True))
    assert scaled > raw + 0.1


def test_unscaled_features_are_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "_warned", set())
    made, rng = registry.make("pairrank"), np.random.default_rng(0)
    rows = raw_lists(1, rng)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.rank(rankloop.scaled(Candidates(features=rows)), 3, rng)
        made.rank(Candidates(features=8 * rng.normal(size=(20, 4))), 3, rng)  # standardized ones, and those with tails
        registry.make("bubblerank").rank(Candidates(features=rows), 3, rng)  # looks at no features
    with pytest.warns(RankloopWarning, match=r"features\[\d+, 1\] is .* give rankloop.scaled\(candidates\)") as seen:
        made.rank(Candidates(features=rows), 3, rng)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.rank(Candidates(features=rows), 3, rng)
        registry.make("pdgd").rank(Candidates(features=rows), 3, rng)


def test_scaling_is_that_of_the_lab() -> None:
    rows = np.array([[1.0, 5.0, 3.0], [3.0, 5.0, -1.0], [2.0, 5.0, 1.0]])
    found = rankloop.scaled(Candidates("q", ["a", "b", "c"], rows))
    assert found.features is not None
    assert found.features.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]]
    assert (found.query, found.items.tolist()) == ("q", ["a", "b", "c"])
    assert rows[0].tolist() == [1.0, 5.0, 3.0]
    with pytest.raises(InvalidInput, match="no features to scale"):
        rankloop.scaled(Candidates("q", [1, 2]))


# -- long lists ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("explore", ["conservative", "blocks"])
@pytest.mark.parametrize("rule", ["logit", "probability"])
def test_long_lists_are_ranked_as_short_ones(explore: Any, rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, propensities, weights of pairs and blocks are the same by either way, from cold to well trained."""
    rng, truth = np.random.default_rng(0), 3 * np.random.default_rng(1).normal(size=6)
    made: Any = learners.PairRank(explore=explore, prior=0.1, alpha=0.1)
    if rule == "probability":
        made = learners.PairRankPaper(explore=explore, pairs="all", update="onepass", prior=1.0, alpha=0.1)
    seen = set()
    for rounds in range(61):
        if rounds in (0, 1, 4, 20, 60):
            for seed in range(4):
                candidates, k = Candidates(features=rng.random((120, 6))), int(rng.integers(1, 25))
                found = []
                for bound in (500, 0):
                    monkeypatch.setattr(confidence, "LONG", bound)
                    shown = made.rank(candidates, k, np.random.default_rng(seed))
                    other = made.log_propensity(candidates, shown.order[::-1].copy())
                    assert made.log_propensity(candidates, shown.order) == shown.memo["log_propensity"][0]
                    found.append(
                        [*map(np.ndarray.tolist, (shown.order, made.blocks(candidates), *shown.memo.values())), other]
                    )
                assert found[0] == found[1]
                seen.add(len(found[0][1]))
        monkeypatch.setattr(confidence, "LONG", 500)
        shown = made.rank(Candidates(features=rng.random((20, 6))), 8, rng)
        assert shown.features is not None
        worth = shown.features @ truth
        made.learn(shown, Feedback.clicks((rng.random(8) < 1 / (1 + np.exp(worth.mean() - worth))).astype(float)), rng)
    assert 1 in seen
    assert max(seen) > 3


@pytest.mark.parametrize("rule", ["logit", "probability"])
def test_long_lists_of_a_model_that_knows_little(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """136 features and a few lists: nearly all candidates can come up, and few columns tell that of most pairs."""
    widths = set()

    def noting(forms: long_lists._Forms, width: int) -> Array:
        widths.add(width)
        return of_width(forms, width)

    of_width = long_lists._Forms.of_width
    monkeypatch.setattr(long_lists._Forms, "of_width", noting)
    rng, truth = np.random.default_rng(0), np.random.default_rng(1).normal(size=136)
    free: list[int] = []
    made: Any = learners.PairRank(alpha=0.3)
    if rule == "probability":
        made = learners.PairRankPaper(pairs="matched", update="onepass", prior=100.0, alpha=0.1)
    for rounds in range(101):
        if rounds in (1, 3, 10, 30, 100):
            candidates, found = Candidates(features=rng.random((700, 136))), []
            for bound in (700, 0):
                monkeypatch.setattr(confidence, "LONG", bound)
                shown = made.rank(candidates, 10, np.random.default_rng(2))
                assert made.log_propensity(candidates, shown.order) == shown.memo["log_propensity"][0]
                found.append([shown.order.tolist(), *(note.tolist() for note in shown.memo.values())])
            assert found[0] == found[1]
            free.append(int((made.model_.confidence(candidates, made.alpha).predecessors(10)[1] == 0).sum()))
        shown = made.rank(Candidates(features=rng.random((30, 136))), 10, rng)
        assert shown.features is not None
        worth = shown.features @ truth
        made.learn(shown, Feedback.clicks((rng.random(10) < 1 / (1 + np.exp(worth.mean() - worth))).astype(float)), rng)
    assert free[0] > 690
    assert free[-1] < 350
    assert widths > {12, 136}


def test_a_long_list_needs_no_matrix_of_all_pairs() -> None:
    """4,000 candidates: an array of all pairs would have 16 million entries, 122 MB of floats or 15 MB of flags."""
    import tracemalloc

    rng, made = np.random.default_rng(0), learners.PairRank()
    lists = [Candidates(features=rng.random((30, 20))) for _ in range(80)]
    for candidates in lists:
        shown = made.rank(candidates, 10, rng)
        assert shown.features is not None
        made.learn(shown, Feedback.clicks((shown.features[:, 0] > 0.6).astype(float)), rng)
    long = Candidates(features=rng.random((4000, 20)))
    for one in (made, learners.PairRank()):
        one.rank(long, 10, np.random.default_rng(0))
        tracemalloc.start()
        one.rank(long, 10, np.random.default_rng(0))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * 8 * 4000 * 20
