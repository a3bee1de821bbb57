"""The PairRank experiment in small, and the rules by which its claims are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rankloop.lab.papers.evidence import Gap, claim_all, claim_higher, gaps
from rankloop.lab.papers.pairrank_claims import claims
from rankloop.lab.papers.pairrank_settings import CONTENDERS, USERS, Scale

from rankloop.errors import UnknownName
from rankloop.lab.figures.report import Claim
from rankloop.lab.papers import PAPERS, pairrank, reproduction
from rankloop.lab.runs.results import read_results, table_of
from rankloop.lab.runs.workers import Event

DATA = "synthetic:mq2008?queries=20&vali=6&test=6&features=6"
ROUNDS = (1, 100, 1000)


def results(measure: str, series: dict[str, list[list[float]]], users: tuple[str, ...] = ("perfect",)) -> pa.Table:
    """Label -> for each seed the values at rounds 1, 100 and 1000, the same for every user."""
    rows: list[dict[str, Any]] = [
        {
            "run": f"{label}{user}{seed}",
            "label": label,
            "data": "d",
            "user": user,
            "seed": seed,
            "round": at,
            measure: v,
        }
        for label, seeds in series.items()
        for user in users
        for seed, values in enumerate(seeds)
        for at, v in zip(ROUNDS, values, strict=True)
    ]
    return table_of(rows)


def found(table: pa.Table, words: str) -> Claim:
    (claim,) = [claim for claim in claims(table) if words in claim.expected]
    return claim


# -- evidence ------------------------------------------------------------------------------------------------------


def test_differences_are_paired_by_seed() -> None:
    table = results("cosine", {"a": [[0, 0, 1.0], [0, 0, 5.0]], "b": [[0, 0, 0.5], [0, 0, 4.4]]})
    (gap,) = gaps(table, "cosine", ["a"], ["b"])
    assert gap.value == pytest.approx(0.55)  # of .5 and .6; unpaired, the error would be 2.8
    assert gap.error == pytest.approx(0.05)
    assert gap.sure


def test_differences_can_be_taken_before_the_end() -> None:
    table = results("cosine", {"a": [[0.0, 0.7, 1.0]], "b": [[0.0, 0.5, 1.0]]})
    (gap,) = gaps(table, "cosine", ["a"], ["b"], share=0.1)
    assert gap.value == pytest.approx(0.2)
    assert gaps(table, "cosine", ["a"], ["b"], users=["navigational"]) == []


def test_a_seed_that_only_one_of_the_two_has_is_left_out() -> None:
    table = results("cosine", {"a": [[0, 0, 1.0], [0, 0, 9.0]], "b": [[0, 0, 0.5]]})
    (gap,) = gaps(table, "cosine", ["a"], ["b"])
    assert gap.value == pytest.approx(0.5)
    assert np.isnan(gap.error)


SURE, UNSURE, OPPOSITE = Gap("d", "a - b", 1.0, 0.1), Gap("d", "a - b", 0.1, 0.1), Gap("d", "a - b", -1.0, 0.1)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([SURE, SURE], "seen"),
        ([SURE, SURE, UNSURE], "seen"),
        ([SURE, UNSURE], "not seen"),
        ([SURE, SURE, SURE, OPPOSITE], "not seen"),
        ([], "not tested"),
        ([Gap("d", "a - b", 0.1, float("nan"))], "seen"),
        ([Gap("d", "a - b", 0.0, float("nan"))], "not seen"),
    ],
)
def test_above_is_seen_if_most_surely_say_so_and_none_the_opposite(differences: list[Gap], verdict: str) -> None:
    assert claim_higher("a above b", "4", "cosine", differences).verdict == verdict


def test_a_claim_comes_with_its_numbers() -> None:
    claim = claim_higher("a above b", "4", "cosine", [SURE, OPPOSITE])
    for number in ("higher in 1", "lower in 1", "of 2", "+1 ± 0.1", "-1 ± 0.1"):
        assert number in claim.seen
    assert claim_all("close", "4", [SURE, UNSURE], lambda gap: gap.within(0.05), "close").verdict == "not seen"
    assert claim_all("close", "4", [UNSURE], lambda gap: gap.within(0.05), "close").verdict == "seen"


# -- the claims of the paper ---------------------------------------------------------------------------------------


def test_conservative_above_random_exploration() -> None:
    better, worse = [[0, 1, 10.0], [0, 1, 11.0]], [[0, 1, 9.0], [0, 1, 10.1]]
    assert (
        found(results("online.cndcg", {"PairRank_C": better, "PairRank_R": worse}), "PairRank_C serves").verdict
        == "seen"
    )
    assert (
        found(results("online.cndcg", {"PairRank_C": worse, "PairRank_R": better}), "PairRank_C serves").verdict
        == "not seen"
    )


@pytest.mark.parametrize(
    ("measure", "words", "winner"),
    [
        ("offline.ndcg@10", "DBGD and MGD end with worse", "SGD RankNet"),
        ("offline.ndcg@10", "PDGD consistently outperforms", "PDGD"),
        ("offline.ndcg@10", "variants end with a better", "PairRank_C"),
        ("online.cndcg", "variants serve users better", "PairRank_R"),
        ("cosine", "are far from the offline model", "PDGD"),
    ],
)
def test_dueling_learners_below_the_pairwise_ones(measure: str, words: str, winner: str) -> None:
    high, low, between = [[0, 0.3, 0.6]], [[0, 0.2, 0.4]], [[0, 0.25, 0.5]]
    for duel in ("DBGD", "MGD"):
        assert found(results(measure, {winner: high, duel: low}), words).verdict == "seen"
        assert found(results(measure, {winner: low, duel: high}), words).verdict == "not seen"
    assert found(results(measure, {winner: between, "DBGD": low, "MGD": high}), words).verdict == "not seen"


def test_blocks_fall_to_one() -> None:
    fast = found(results("block_size@1", {"PairRank_C": [[50, 1.2, 1]]}), "rank 1 falls to 1")
    assert (fast.verdict, "by round 100" in fast.seen) == ("seen", True)
    slow = found(results("block_size@1", {"PairRank_C": [[50, 20, 1]]}), "rank 1 falls to 1")
    assert (slow.verdict, "by round 1000" in slow.seen) == ("not seen", True)
    never = found(results("block_size@1", {"PairRank_C": [[50, 20, 8]]}), "rank 1 falls to 1")
    assert (never.verdict, "ends at 8" in never.seen) == ("not seen", True)


def test_navigational_users_are_slowest() -> None:
    def sizes(navigational: float) -> pa.Table:
        slow = results("block_size@1", {"PairRank_C": [[50, navigational, 1]]}, ("navigational",))
        return pa.concat_tables([results("block_size@1", {"PairRank_C": [[50, 10, 1]]}), slow])

    assert found(sizes(20), "slowest for navigational").verdict == "seen"
    assert found(sizes(5), "slowest for navigational").verdict == "not seen"


def test_blocks_are_larger_in_the_middle() -> None:
    def sizes(middle: float) -> pa.Table:
        rows = results("block_size@middle", {"PairRank_C": [[50, middle, middle]]}).to_pylist()
        return table_of([{**row, "block_size@1": 20.0, "block_size@last": 30.0} for row in rows])

    assert found(sizes(25), "in the middle").verdict == "seen"  # a mean of 33
    assert found(sizes(15), "in the middle").verdict == "not seen"


def test_without_runs_nothing_is_claimed() -> None:
    assert {claim.verdict for claim in claims(results("online.ndcg", {"random": [[0, 0, 0]]}))} == {"not tested"}


# -- the whole -----------------------------------------------------------------------------------------------------


def test_papers_are_found_by_name() -> None:
    for name in PAPERS:
        assert callable(reproduction(name))
    with pytest.raises(UnknownName, match="no paper is called 'rankpair'; there are pairrank"):
        reproduction("rankpair")


def test_the_experiment_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(pairrank_contender(contender) for contender in CONTENDERS)
    for module in ("pairrank", "pairrank_report"):
        monkeypatch.setattr(f"rankloop.lab.papers.{module}.CONTENDERS", few)
    scale = Scale((DATA,), rounds=30, seeds=2, choice_rounds=10, refit_rounds=5)
    path = pairrank.carry_out_at(scale, tmp_path)
    page = path.read_text("utf-8")
    for name in ("PairRank_C", "PairRank_R", "PDGD", "DBGD", "MGD", "SGD RankNet", "ε-greedy", "offline RankNet"):
        assert name in page
    assert "--data" in page
    assert page.count("<img") == 6
    assert "**not tested**" not in (tmp_path / "claims.md").read_text("utf-8")
    table = read_results(tmp_path / "pairrank.parquet")
    assert len(set(table["run"].to_pylist())) == len(CONTENDERS) * len(USERS) * 2
    events: list[Event] = []
    pairrank.carry_out_at(scale, tmp_path, on_event=events.append)
    assert {event.kind for event in events} == {"kept"}
    assert path.read_text("utf-8") == page


def pairrank_contender(contender: Any) -> Any:
    """The same with two settings to choose from at most."""
    return type(contender)(contender.name, contender.learner, contender.settings[:2])


def test_settings_are_chosen_on_the_validation_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = {"rate": 0.01}

    def judged(trials: Any, *_: Any) -> pa.Table:
        assert {trial.evaluate_on for trial in trials} == {"vali"}
        quality = [{"run": t.id, "offline.ndcg@10": float(t.params == best)} for t in trials]
        return table_of(quality)

    monkeypatch.setattr("rankloop.lab.papers.pairrank.carry_out", judged)
    chosen = pairrank._choose(Scale((DATA,), 30, 1, 10, 5), tmp_path, 1, None)
    assert chosen[DATA, "SGD RankNet"] == best
    assert chosen[DATA, "PDGD"] == {}
