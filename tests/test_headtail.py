"""What benchmarks/headtail.py and benchmarks/yandex_hybrid.py measure, and on what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.headtail import Kept, rows_of, served, spread
from benchmarks.yandex_hybrid import Copies, Served

from rankloop.lab.data.sources import open_split
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.users.bandit_models import open_models

FEW = "synthetic:mq2008?queries=60&vali=1&test=1"


def test_head_and_tail_are_counted_at_each_mark() -> None:
    query = np.array(["a"] * 3 + ["b"] * 20 + ["a"] * 17)
    found = spread(query, np.arange(40.0), [23, 40])
    assert found["tail 23"] == 1.0  # a came three times
    assert found["head 23"] == np.arange(3, 23).mean()
    assert np.isnan(found["tail 40"])  # by now it came twenty times
    assert found["head 40"] == found["all 40"] == np.arange(40).mean()


def test_lists_without_a_relevant_document_count_for_nobody() -> None:
    assert spread(np.array(["a", "b"]), np.array([0.5, np.nan]), [2])["all 2"] == 0.5
    split = open_split(FEW)
    offsets, grades = split.train.offsets, np.asarray(split.train.grades)
    empty = [q for q in range(60) if grades[offsets[q] : offsets[q + 1]].max() == 0]
    assert empty, "the data must have such queries, or this shows nothing"
    trial = Trial("base", data=FEW, rounds=300, seed=1, trace=True, evaluations=1)
    every = served(trial, split, [300])["all 300"]
    record = run(trial, split)
    kept = ~np.isin(record.trace["query"], split.train.queries[empty])
    assert every == pytest.approx(record.trace["ndcg"][kept].mean())


def test_what_was_run_is_not_run_again(tmp_path: Path) -> None:
    path, asked = tmp_path / "new" / "runs.jsonl", list[str]()

    def once() -> dict[str, float]:
        asked.append("once")
        return {"all 1": 0.25}

    assert Kept(path).of("key", once, "said") == {"all 1": 0.25}
    assert Kept(path).of("key", once, "said") == {"all 1": 0.25}
    assert asked == ["once"]
    Kept(path).of("other", once, "said")
    assert len(path.read_text("utf-8").splitlines()) == 2


def test_differences_are_to_the_first_learner_and_paired() -> None:
    def one(value: float) -> dict[str, float]:
        return {f"{kind} 9": value for kind in ("head", "tail", "all")}

    rows = rows_of("u", ["one", "two"], {"one": [one(0.1), one(0.5)], "two": [one(0.2), one(0.6)]}, [9])
    assert [row["head 9"] for row in rows] == ["0.300", "0.400 (+0.100 ± 0.000)"]


def test_features_explain_half_of_what_attracts() -> None:
    world = Copies(open_models("generated")["PBM"], seed=3, rounds=10)
    z = np.concatenate(world.latent)
    assert z.std() == pytest.approx(1.0)
    assert all(abs(one.mean()) < 1e-12 for one in world.latent)
    rows, attracts = world.features(np.tile(z, 200), np.random.default_rng(0)), np.tile(z, 200)
    weights, left, _, _ = np.linalg.lstsq(rows, attracts, rcond=None)
    assert 1.0 - left[0] / (attracts**2).sum() == pytest.approx(0.5, abs=0.02)
    assert weights @ world.best == pytest.approx(np.linalg.norm(weights), rel=1e-3)
    assert world.best @ world.production == pytest.approx(0.6)


def test_copies_differ_in_features_and_come_back_as_they_were() -> None:
    world = Copies(open_models("generated")["PBM"], seed=3, rounds=2000)
    rng = np.random.default_rng(0)
    first = {world.at(t, rng).candidates.query: world.at(t, rng) for t in range(2000)}
    one, other = list(first.values())[:2]
    again = Copies(open_models("generated")["PBM"], seed=3, rounds=2000)
    assert one.candidates.features is not None
    assert other.candidates.features is not None
    assert not np.allclose(one.candidates.features, other.candidates.features)
    same = again.at(0, rng).candidates.features
    assert same is not None
    assert same.tobytes() == one.candidates.features.tobytes()
    user = world.users[world.names[world.copied[int(one.candidates.query)]]]
    assert one.grades.tolist() == user.attraction[one.candidates.items].tolist()


def test_the_best_list_has_an_ndcg_of_one_and_no_list_more() -> None:
    found = Served("random", {}, "generated", "CM", 5, (50, 200)).run()
    assert 0.3 < found["all 200"] < 1.0
    assert 0.0 < found["clicks"] <= 1.0  # users of a cascade click once
    assert np.isnan(found["late"])  # none came a thousand times
