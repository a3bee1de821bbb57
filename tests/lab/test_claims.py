"""The rule by which claims are judged, every kind of claim, and the tables beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rankloop.evaluation.statistics import Estimate
from rankloop.lab.plots.cells import Cell, Results, after, by_round, estimate, growth, mean_until, rise
from rankloop.lab.plots.tables import Ends, Growth
from rankloop.lab.runs.results import table_of
from rankloop.papers.claims import (
    Claim,
    Comparison,
    ForUser,
    Halfway,
    Higher,
    Larger,
    Level,
    Never,
    Spread,
    Steps,
    Straight,
    Within,
    verdict,
)

ROUNDS = (1, 100, 1000)


def rows(measure: str, series: dict[str, list[Any]], data: str = "d", user: str = "u") -> list[dict[str, Any]]:
    """Label -> for each seed its value at the end, or at rounds 1, 100 and 1000."""
    return [
        {"run": f"{label}{data}{user}{seed}", "label": label, "data": data, "user": user, "seed": seed}
        | {"round": at, measure: float(value)}
        for label, seeds in series.items()
        for seed, values in enumerate(seeds)
        for at, value in zip(ROUNDS, values if isinstance(values, list) else [0, 0, values], strict=True)
    ]


def results(*parts: list[dict[str, Any]]) -> Results:
    return Results({"main": table_of(row for part in parts for row in part)})


# -- the rule --------------------------------------------------------------------------------------------------------


def one(value: float, error: float = 0.1, df: float = 4.0) -> Comparison:
    return Comparison("a - b", "d", Estimate(value, error, df, 5), 0.0, np.inf)


SURE, UNSURE, OPPOSITE = one(1.0), one(0.1), one(-1.0)
ALONE = one(1.0, float("nan"), 0.0)  # a single run


@pytest.mark.parametrize(
    ("found", "most", "every", "any_"),
    [
        ([SURE, SURE], "supported", "supported", "supported"),
        ([SURE, SURE, UNSURE], "supported", "undecided", "supported"),
        ([SURE, UNSURE], "undecided", "undecided", "supported"),
        ([UNSURE], "undecided", "undecided", "undecided"),
        ([SURE, SURE, SURE, OPPOSITE], "refuted", "refuted", "supported"),
        ([OPPOSITE, UNSURE], "refuted", "refuted", "undecided"),
        ([OPPOSITE, OPPOSITE], "refuted", "refuted", "refuted"),
        ([ALONE, ALONE, ALONE], "undecided", "undecided", "undecided"),
        ([ALONE, SURE, SURE], "supported", "undecided", "supported"),
        ([], "not tested", "not tested", "not tested"),
    ],
)
def test_the_rule(found: list[Comparison], most: str, every: str, any_: str) -> None:
    assert verdict(found)[0] == most
    assert verdict(found, "all")[0] == every
    assert verdict(found, "any")[0] == any_


def test_many_comparisons_make_each_less_sure() -> None:
    """t = 3 with four degrees of freedom is p = .02: enough alone, not as one of twenty."""
    lucky = one(0.3)
    assert verdict([lucky])[0] == "supported"
    assert verdict([lucky, *[one(0.0)] * 19], "any")[0] == "undecided"
    assert verdict([one(-0.3), *[SURE] * 19])[0] == "supported"  # nor is one unlucky one a failure


def test_chance_alone_is_seldom_seen() -> None:
    """Of claims without anything in them, with three seeds and ten comparisons, at most 5 % are called seen or not."""
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(400):
        draws = rng.normal(size=(10, 3))
        found = [one(d.mean(), d.std(ddof=1) / 3**0.5, 2.0) for d in draws]
        called += verdict(found, "any")[0] == "supported"
    assert called <= 0.05 * 400 + 2 * (0.05 * 0.95 * 400) ** 0.5


# -- readings and cells ----------------------------------------------------------------------------------------------


def test_readings() -> None:
    at, values = np.array(ROUNDS), np.array([1.0, 4.0, 9.0])
    found = [
        reading.of(at, values) for reading in (after(0.1), by_round(999), rise(0.1), mean_until(0.1), mean_until())
    ]
    assert found == [4.0, 4.0, 5.0, 2.5, pytest.approx(14 / 3)]
    assert growth().of(at, np.array([1.0, 10.0, 10 * 10**0.5])) == pytest.approx(0.5)
    assert growth(little=1.0).of(at, values) == 0.0
    assert np.isnan(growth().of(at, np.array([0.0, -1.0, 5.0])))


def test_pooled_queries_are_clusters() -> None:
    """Four queries that differ, ten runs each that hardly do: what is known is known of four, not of forty."""
    rng = np.random.default_rng(1)
    level = {f"query {q}": 10.0 * q for q in range(4)}
    made = [rows("regret", {"a": list(level[q] + rng.normal(0, 0.1, 10))}, q) for q in level]
    found = estimate(results(*made).values("main", "regret", "a", Cell("", "u")))
    assert found.error == pytest.approx(np.std([0, 10, 20, 30], ddof=1) / 2, rel=0.02)  # 6.5; pooled it would be 1.8
    assert found.df == pytest.approx(3.0)


def test_folds_of_one_set_share_a_cell() -> None:
    folds = [rows("cosine", {"a": [fold, fold + 0.1], "b": [0.0, 0.1]}, f"X?fold={fold}") for fold in (1, 2, 3)]
    (found,) = Higher("", "", "cosine", "a", "b").comparisons(results(*folds))
    assert found.found.value == pytest.approx(2.0)
    assert found.found.df == pytest.approx(2.0)  # three folds


def test_differences_are_paired_by_seed() -> None:
    (found,) = Higher("", "", "cosine", "a", "b").comparisons(
        results(rows("cosine", {"a": [1, 5, 9], "b": [0.5, 4.4]}))
    )
    assert found.found.value == pytest.approx(0.55)  # of .5 and .6; unpaired, the error would be 2.8
    assert found.found.error == pytest.approx(0.05)


# -- every kind of claim, seen, turned round, and with one seed --------------------------------------------------------

USERS = ("perfect", "navigational")


def by_user(navigational: float) -> Results:
    made = [
        rows("blocks", {"a": [[s, s, s] for s in (v, v + 0.1, v)]}, user=u)
        for u, v in zip(USERS, (5.0, navigational), strict=True)
    ]
    return results(*made)


def lists(bend: float) -> Results:
    """Regret against the pairs that start wrong: a slope of 3, three queries at their own levels."""
    rng = np.random.default_rng(2)
    made = []
    for q in range(4):
        wrong = rng.permutation(20)[:10].astype(float)
        regret = 100 * q + 3 * wrong + bend * (wrong - 10) ** 2 + rng.normal(0, 0.5, 10)
        made.append(
            [
                a | b
                for a, b in zip(
                    rows("regret", {"a": list(regret)}, f"q{q}"),
                    rows("wrong", {"a": list(wrong)}, f"q{q}"),
                    strict=True,
                )
            ]
        )
    return results(*made)


def steps(factor: float) -> Results:
    return results(
        rows("regret", {f"0.5^{i}": [10 * factor**i, 10.1 * factor**i, 9.9 * factor**i] for i in range(1, 4)})
    )


WELL, POOR = [1.0, 1.1, 1.2], [0.5, 0.59, 0.71]
PAIR = Higher("", "", "cosine", "a", "b")
KINDS: dict[str, tuple[Claim, Results, Results]] = {
    "higher": (PAIR, results(rows("cosine", {"a": WELL, "b": POOR})), results(rows("cosine", {"a": POOR, "b": WELL}))),
    "times": (
        replace(PAIR, times=1.5),
        results(rows("cosine", {"a": WELL, "b": POOR})),
        results(rows("cosine", {"a": WELL, "b": [0.9, 1.0, 1.09]})),
    ),
    "within": (
        Within("", "", "cosine", "a", "b", above=-0.1, below=0.1),
        results(rows("cosine", {"a": WELL, "b": [1.01, 1.1, 1.19]})),
        results(rows("cosine", {"a": WELL, "b": POOR})),
    ),
    "relative": (
        Within("", "", "cosine", "a", "b", above=-np.inf, below=0.25, relative=True),
        results(rows("cosine", {"a": [110, 112, 111], "b": [100, 101, 99]})),
        results(rows("cosine", {"a": [150, 152, 151], "b": [100, 101, 99]})),
    ),
    "spread": (
        Spread("", "", "cosine", "a", "b", times=1.5, above=-np.inf, below=0.0),
        results(rows("cosine", {"a": [1, 2, 3, 4, 5, 6, 7, 8], "b": [1, 4, 7, 10, 13, 16, 19, 22]})),
        results(rows("cosine", {"a": [0, 50, 100, 150, 200, 250, 300, 350], "b": [1, 2, 3, 4, 5, 6, 7, 8]})),
    ),
    "level": (
        Level("", "", "cosine", "a", reading=rise(0.1)),
        results(rows("cosine", {"a": [[0, 1, 2], [0, 1, 2.1], [0, 1, 2.2]]})),
        results(rows("cosine", {"a": [[0, 2, 1], [0, 2, 1.1], [0, 2, 1.2]]})),
    ),
    "larger": (
        Larger("", "", "block_size@10", "block_size@1", "a"),
        results(
            [x | y for x, y in zip(rows("block_size@10", {"a": WELL}), rows("block_size@1", {"a": POOR}), strict=True)]
        ),
        results(
            [x | y for x, y in zip(rows("block_size@10", {"a": POOR}), rows("block_size@1", {"a": WELL}), strict=True)]
        ),
    ),
    "user": (ForUser("", "", "blocks", "a", "navigational", -1.0), by_user(2.0), by_user(8.0)),
    "halfway": (
        Halfway("", "", "cosine", "a", "random", "best"),
        results(rows("cosine", {"a": [0.8, 0.81, 0.79], "random": [0.1, 0.11, 0.1], "best": [1.0, 1.01, 1.0]})),
        results(rows("cosine", {"a": [0.4, 0.41, 0.39], "random": [0.1, 0.11, 0.1], "best": [1.0, 1.01, 1.0]})),
    ),
    "steps": (
        Steps("", "", "regret", ("0.5^1", "0.5^2", "0.5^3"), above=float(np.log2(1.5)), below=float(np.log2(2.5))),
        steps(2.0),
        steps(3.0),
    ),
    "straight": (Straight("", "", "regret", "wrong", "a"), lists(0.0), lists(2.0)),
    "never": (
        Never("", "", "unsafe", ("a",)),
        results(rows("unsafe", {"a": [0, 0]})),
        results(rows("unsafe", {"a": [0, 1]})),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_claim_is_seen_and_turned_round_it_is_not(kind: str) -> None:
    claim, good, bad = KINDS[kind]
    assert claim.check(good).verdict == "supported"
    assert claim.check(bad).verdict == "refuted"
    assert claim.check(Results({"main": table_of([])})).verdict == "not tested"
    if kind not in ("never", "straight"):
        table = good.tables["main"]
        single = Results({"main": table.filter(pa.array([seed == 0 for seed in table["seed"].to_pylist()]))})
        assert claim.check(single).verdict == "undecided"


# -- tables ----------------------------------------------------------------------------------------------------------


def test_tables_of_ends_have_users_and_learners_down_and_data_across() -> None:
    made = [rows("online.cndcg", {"DBGD": [99.0, 101.0], "DM²L": [110.0, 112.0]}, data) for data in ("a", "b")]
    table = Ends("T", "online.cndcg", digits=1, over={"DM²L": "DBGD"}).table(results(*made))
    assert table.columns == ("user", "learner", "a", "b")
    assert [row[:3] for row in table.rows] == [
        ("u", "DBGD", "100.0 ± 1.0"),
        ("u", "DM²L", "111.0 ± 1.0"),
        ("u", "DM²L over DBGD", "+11.0%"),
    ]
    pooled = Ends("T", "online.cndcg", digits=1, pooled=True).table(results(*made))
    assert (pooled.columns, pooled.rows[0]) == (("learner", "u"), ("DBGD", "100.0 ± 0.0"))


def test_tables_of_growth() -> None:
    table = Growth("T", "regret", part="main", rounds=(100, 1000)).table(
        results(rows("regret", {"a": [[1, 10, 100], [1, 10, 100]]}))
    )
    assert table.rows == [("d", "a", "10", "100", "1.00 ± 0.00")]
