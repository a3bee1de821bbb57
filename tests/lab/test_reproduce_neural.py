"""The experiment with neural rankers in small, what it measures, and the verdicts on its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rankloop.lab.papers.neural_claims import claims
from rankloop.lab.papers.neural_settings import CONTENDERS, FULL, QUICK, USERS, Scale
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from rankloop import cli
from rankloop.lab.data.dataset import Dataset
from rankloop.lab.data.lda import Projection, project
from rankloop.lab.data.sources import open_split
from rankloop.lab.figures import learning as figures
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers import neural
from rankloop.lab.runs.probes import certain
from rankloop.lab.runs.results import read_results, table_of
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.runs.workers import Event
from rankloop.learners.neural.olranknet import OLRankNet
from rankloop.types import Array

DATA = "synthetic:mq2008?queries=20&vali=6&test=6&features=6&relevance=strong"
TINY = Scale((DATA,), rounds=20, seeds=1, choice_rounds=5)
MIXED = Projection(np.zeros((1, 2)), np.zeros(1), np.zeros((3, 2)), right=0.5, chance=1 / 3)
END = {
    "olRankNet": 0.60,
    "olLambdaRank": 0.61,
    "PairRank": 0.55,
    "Linear-PDGD": 0.50,
    "Neural-PDGD": 0.45,
    "Linear-DBGD": 0.35,
    "Neural-DBGD": 0.30,
    "ε-Greedy": 0.48,
    "olLambdaRank GT": 0.70,
}
START = {**END, "PairRank": 0.45, "olRankNet": 0.3, "olLambdaRank": 0.3}
SURE = {"perfect": 0.5, "navigational": 0.2, "informational": 0.6}


def results(end: dict[str, float], start: dict[str, float] = START, sure: dict[str, float] = SURE) -> pa.Table:
    """Curves of two seeds: held-out NDCG, 1000 times that as cumulative NDCG, certain pairs; the same for all users."""
    rows: list[dict[str, Any]] = []
    for label in end:
        for user in USERS:
            for seed in range(2):
                for at, value in ((100, start[label]), (1000, 0.5 * (start[label] + end[label])), (5000, end[label])):
                    row = {
                        "run": f"{label}{user}{seed}",
                        "label": label,
                        "data": "a",
                        "user": user,
                        "seed": seed,
                        "round": at,
                        "offline.ndcg@10": value + 0.001 * seed,
                        "online.cndcg": 1000 * value + seed,
                    }
                    share = sure[user] * at / 5000 if label == "olRankNet" else None
                    rows.append(row | ({} if share is None else {"certain@10": share + 0.0001 * seed}))
    return table_of(rows)


def found(table: pa.Table, words: str, planes: dict[str, Projection] | None = None) -> Claim:
    (claim,) = [claim for claim in claims(table, planes or {"a": MIXED}) if words in claim.expected]
    return claim


# -- the claims ----------------------------------------------------------------------------------------------------


def test_what_the_paper_saw_is_seen() -> None:
    verdicts = {claim.expected: claim.verdict for claim in claims(results(END), {"a": MIXED})}
    assert set(verdicts.values()) == {"seen"}
    assert len(verdicts) == 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"olRankNet": 0.54}, "better ranker than all baselines"),
        ({"olRankNet": 0.54}, "end above it"),
        ({"olLambdaRank": 0.58}, "ends with a better ranker than olRankNet"),
        ({"olLambdaRank": 0.58}, "at least as good as olRankNet"),
        ({"Linear-DBGD": 0.53}, "perform worst"),
        ({"Linear-DBGD": 0.53}, "PDGD outperforms DBGD"),
        ({"Neural-PDGD": 0.52}, "does not help PDGD"),
        ({"PairRank": 0.75}, "true grades"),
        ({"olLambdaRank": 0.64}, "not very significant"),
        ({"ε-Greedy": 0.65}, "serve users better while they learn"),
        ({"Linear-PDGD": 0.65}, "PDGD serves navigational"),
        ({"Neural-DBGD": 0.5}, "DBGD serves users worst"),
    ],
)
def test_the_opposite_is_not_seen(change: dict[str, float], words: str) -> None:
    assert found(results(END), words).verdict == "seen"
    assert found(results({**END, **change}), words).verdict == "not seen"


def test_a_better_start_than_pairrank_is_told() -> None:
    assert found(results(END, {**START, "olRankNet": 0.5}), "worse start").verdict == "not seen"


def test_certain_pairs_must_rise_and_be_fewest_for_navigational_users() -> None:
    fast = {**SURE, "navigational": 0.55}
    assert found(results(END, sure=fast), "slowest for navigational").verdict == "not seen"
    assert found(results(END, sure=dict.fromkeys(USERS, -0.1)), "rises with the rounds").verdict == "not seen"
    without = results({"PairRank": 0.5})
    assert found(without, "rises with the rounds").verdict == "not tested"


def test_grades_that_a_line_separates_are_told() -> None:
    apart = MIXED._replace(right=0.9)
    assert found(results(END), "A linear view", {"a": MIXED, "b": apart}).verdict == "not seen"
    assert (
        "a: 50% of the documents nearest to their grade's centre (guessing: 33%)"
        in found(results(END), "A linear view").seen
    )


# -- Figure 3 and Figure 6 -----------------------------------------------------------------------------------------


def test_the_plane_is_that_of_linear_discriminant_analysis() -> None:
    """Up to the direction of its axes, and each axis in units of the spread within a grade."""
    split = open_split("synthetic:mq2008?queries=60&vali=1&test=1&features=12")
    plane = project(split.train)
    features, grades = split.train.features, split.train.grades
    features = features[:, features.std(0) > 0]  # scikit-learn's needs features that vary
    other = LinearDiscriminantAnalysis(solver="eigen", n_components=2).fit(features, grades).transform(features)
    assert len(plane.points) == len(grades)
    for axis in range(2):
        assert abs(np.corrcoef(plane.points[:, axis], other[:, axis])[0, 1]) > 0.9999
    inside = plane.points - plane.centres[plane.grades]
    assert inside.T @ inside / len(inside) == pytest.approx(np.eye(2), abs=1e-4)
    assert plane.chance == pytest.approx(1 / 3)


def test_two_grades_have_one_axis() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3))
    grades = (rows[:, 1] > 0).astype(np.int64)
    plane = project(Dataset("two", rows, grades, np.array([0, 200]), np.array(["q"])))
    assert not plane.points[:, 1].any()
    assert plane.right > 0.9
    figure = figures.scatter({"two": (plane.points, plane.grades)})
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["0", "1"]  # type: ignore[union-attr]


class Sure(OLRankNet):
    """Certain that what has the higher first feature is better, but for the best."""

    def best(self, candidates: Any, k: int) -> Array:
        order: Array = np.argsort(-candidates.features[:, 0])[:k]
        return order

    def certain(self, candidates: Any, positions: Array) -> Array:  # noqa: ARG002
        relation = np.triu(np.ones((len(positions),) * 2, np.bool_), k=1)
        relation[0] = False
        return relation


def test_the_share_of_certain_pairs_is_of_all_pairs_of_the_first_ten() -> None:
    train = open_split("synthetic:mq2007?queries=5&vali=1&test=1&docs=30&sizes=fixed").train
    assert certain(train)(Sure()) == {"certain@10": 36 / 45}
    assert certain(train, k=3)(Sure()) == {"certain@3": 1 / 3}
    assert certain(train)(OLRankNet()) == {"certain@10": 0.0}
    from rankloop.registry import make

    assert certain(train)(make("pairrank")) == {}
    record = run(Trial("olranknet", DATA, rounds=10, probes=("certain",)))
    assert 0.0 <= record.last("certain@10") <= 1.0


# -- the whole -----------------------------------------------------------------------------------------------------


def test_everyone_has_as_many_tries() -> None:
    assert {len(contender.settings) for contender in CONTENDERS} == {4}
    assert (FULL.rounds, FULL.seeds) == (5000, 10)  # the paper's
    assert all("relevance=" in data for data in (*FULL.data, *QUICK.data))


def test_the_command_in_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(neural, "QUICK", TINY)
    call = ["reproduce", "neural", "--quick", "--out", str(tmp_path), "--processes", "1"]
    with pytest.raises(SystemExit) as ended:
        cli.main(call)
    assert not ended.value.code
    printed, page = capsys.readouterr().out, (tmp_path / "report.html").read_text("utf-8")
    for text in ("16 claims", "| mq2008 | navigational | olLambdaRank | 1 |", "| mq2008 | perfect | ε-Greedy |"):
        assert text.replace("mq2008", "synthetic:mq2008") in printed
    assert page.count("<img") == 4
    for contender in CONTENDERS:
        assert contender.name in page
        assert f"<td>{contender.learner}</td>" in page
    assert "rate=0.003; rate=0.01" in page, "the grid is published"

    chosen, table = read_results(tmp_path / "choice.parquet"), read_results(tmp_path / "neural.parquet")
    assert len(set(table["run"].to_pylist())) == len(CONTENDERS) * len(USERS)
    assert set(chosen["evaluate_on"].to_pylist()) == {"vali"}
    assert set(table["evaluate_on"].to_pylist()) == {"test"}
    quality: dict[str, list[float]] = {}
    for row in chosen.to_pylist():
        if row["learner"] == "pairrank":
            quality.setdefault(row["params"], []).append(row["offline.ndcg@10"])
    best = max(quality, key=lambda params: float(np.mean(quality[params])))
    assert {row["params"] for row in table.to_pylist() if row["learner"] == "pairrank"} == {best}

    events: list[Event] = []
    neural.carry_out_at(TINY, tmp_path, on_event=events.append)
    assert {event.kind for event in events} == {"kept"}
    assert (tmp_path / "report.html").read_text("utf-8") == page


def test_data_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scales: list[Scale] = []
    monkeypatch.setattr(neural, "carry_out_at", lambda scale, *_: scales.append(scale))
    neural.reproduce(tmp_path, ["x", "y"])
    neural.reproduce(tmp_path, quick=True)
    assert (scales[0].data, scales[0].rounds) == (("x", "y"), FULL.rounds)
    assert scales[1] == QUICK
