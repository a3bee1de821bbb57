"""What says ±: against formulas by hand, and against the truth in thousands of draws."""

from __future__ import annotations

from math import inf, nan, sqrt
from typing import Any

import numpy as np
import pytest
from benchmarks.coverage import DESIGNS, differences, means
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.types import Array
from rankloop.evaluation import statistics
from rankloop.evaluation.statistics import Estimate, clustered, holm, mean, paired
from tests.reference import statistics as naive

SEEDS = st.integers(0, 2**31)


# -- they hold the truth -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.slow
def test_t_intervals_hold_the_truth(seeds: int) -> None:
    """In 93 to 97 % of 2,000 draws: means, and differences of runs that share their seeds."""
    assert 0.93 <= means(seeds, 2000).right <= 0.97
    assert 0.93 <= differences(seeds, 2000).right <= 0.97


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.slow
def test_cluster_intervals_hold_the_truth(design: str) -> None:
    """In 93 to 97 % of 2,000 draws, where counting every value for itself holds far less often."""
    held = DESIGNS[design].held(2000)
    assert 0.93 <= held.right <= 0.97
    assert held.naive is not None
    assert held.naive < 0.85 or DESIGNS[design].by_row == 0.0


# -- they are what the formulas say --------------------------------------------------------------------------------


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_mean_is_scipys_t(values: list[float]) -> None:
    found = mean(values)
    assert found.value == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert found.error == pytest.approx(stats.sem(values), rel=1e-6, abs=1e-9)
    assert (found.n, found.df) == (len(values), len(values) - 1)
    if found.error > 1e-6:
        assert found.interval(0.9) == pytest.approx(stats.t.interval(0.9, found.df, found.value, found.error))
        above = stats.ttest_1samp(values, 1.0, alternative="greater").pvalue
        assert found.p_above(1.0) == pytest.approx(above, rel=1e-6, abs=1e-12)
        assert found.p_below(1.0) == pytest.approx(1 - above, rel=1e-6, abs=1e-12)


@given(seed=SEEDS, clusters=st.integers(2, 6), size=st.integers(1, 5))
def test_equal_clusters_are_a_t_test_of_their_means(seed: int, clusters: int, size: int) -> None:
    table = np.random.default_rng(seed).normal(size=(clusters, size))
    found = clustered(table.ravel(), np.repeat(np.arange(clusters), size))
    expected = mean(table.mean(axis=1))
    assert found[:3] == pytest.approx(expected[:3], rel=1e-9)
    assert found.n == table.size


@given(seed=SEEDS, sizes=st.lists(st.integers(1, 6), min_size=2, max_size=7))
def test_unequal_clusters_are_the_matrix_formula(seed: int, sizes: list[int]) -> None:
    """The naive twin builds the (G, G) matrices that the module does without."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    values = np.random.default_rng(seed).normal(size=codes.size)
    found = clustered(values, codes)
    assert (found.error, found.df) == pytest.approx(naive.one_way(values, codes), rel=1e-8)


@given(seed=SEEDS, rows=st.integers(2, 6), columns=st.integers(2, 5), by_row=st.floats(0, 3), by_column=st.floats(0, 3))
def test_a_crossed_table_is_its_analysis_of_variance(
    seed: int, rows: int, columns: int, by_row: float, by_column: float
) -> None:
    rng = np.random.default_rng(seed)
    table = (
        rng.normal(size=(rows, columns)) + by_row * rng.normal(size=(rows, 1)) + by_column * rng.normal(size=columns)
    )
    row, column = np.indices(table.shape)
    found = clustered(table.ravel(), row.ravel(), column.ravel())
    assert (found.error, found.df) == pytest.approx(naive.two_way(table), rel=1e-8)
    assert clustered(table.ravel(), column.ravel(), row.ravel())[:3] == pytest.approx(found[:3])


@given(seed=SEEDS)
def test_paired_is_the_mean_of_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    high, low = (dict(enumerate(rng.normal(size=6).tolist())) for _ in range(2))
    differences = [high[key] - low[key] for key in range(6)]
    assert paired(high, {**low, 9: 4.0}) == mean(differences)
    assert paired(high, low, {key: key // 2 for key in range(6)}) == clustered(differences, [0, 0, 1, 1, 2, 2])
    assert paired({**high, 0: nan}, low).n == 5


@given(p=st.lists(st.one_of(st.floats(0, 1), st.just(nan)), max_size=8))
def test_holm_is_its_definition(p: list[float]) -> None:
    assert holm(p).tolist() == pytest.approx(naive.holm(p), nan_ok=True)


def test_means_of_columns_are_means_of_each() -> None:
    matrix = np.random.default_rng(1).normal(size=(4, 5))
    matrix[0, 1] = matrix[:, 2] = nan
    matrix[1:, 3] = nan
    found = statistics.means(matrix)
    for column in range(5):
        each = mean(matrix[:, column])
        assert Estimate(*(part[column] for part in found)) == pytest.approx(each, nan_ok=True)
    assert statistics.means(matrix.T, axis=1).error == pytest.approx(found.error, nan_ok=True)


# -- few, equal and missing values ---------------------------------------------------------------------------------


def test_equal_values_have_no_error() -> None:
    for found in (
        mean([0.1] * 7),
        clustered([0.1] * 6, [0, 0, 1, 1, 2, 2]),
        clustered([0.1] * 4, [0, 0, 1, 1], [0, 1] * 2),
    ):
        assert found.error == 0.0
        assert found.interval() == (found.value, found.value)
        assert (found.p_above(0.0), found.p_below(0.0), found.p_above(0.2)) == (0.0, 1.0, 1.0)
        assert found.p_above(found.value) == 0.5


def test_bad_input_is_named() -> None:
    cases: list[tuple[str, Any]] = [
        ("value at .1,. is infinite", lambda: mean([1.0, inf])),
        ("values have shape", lambda: mean([[1.0]])),
        ("give numbers", lambda: mean(["a"])),
        ("1 labels for 2 values", lambda: clustered([1.0, 2.0], ["a"])),
        ("0 sequences of labels", lambda: clustered([1.0])),
        ("'b' is in no cluster", lambda: paired({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, {"a": 0})),
        ("give a list of probabilities", lambda: holm([1.2])),
    ]
    for message, call in cases:
        with pytest.raises(InvalidInput, match=message):
            call()
    with pytest.raises(InvalidParameter, match="level is 1"):
        mean([1.0, 2.0]).interval(1)


def test_many_clusters_take_no_square_of_memory() -> None:
    """A hundred thousand users: what a (G, G) array would not survive."""
    users: Array = np.arange(200_000) // 2
    found = clustered(np.random.default_rng(0).normal(size=200_000), users)
    assert found.error == pytest.approx(1 / sqrt(200_000), rel=0.05)
    assert found.df == pytest.approx(99_999, rel=0.01)
