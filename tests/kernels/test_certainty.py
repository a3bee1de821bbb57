"""The certain relation pair by pair, blocks as a graph, and random lists as exact distributions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate, combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import certainty, long_lists
from rankloop.learners.models import long_lists as elimination
from rankloop.learners.models.long_lists import predecessors
from tests.kernels.inputs import NOTHING, SEEDS, frozen, positions, spd
from tests.reference import certainty as naive
from tests.reference.ranking import linear_scores


def law(draw: Callable[[Array], Array], cells: Sequence[int]) -> naive.Distribution:
    """The exact distribution of a list that uniforms decide, by the midpoints of a grid of `cells` a position.

    A uniform choice among m takes the same number of midpoints for each outcome if m divides the cells, so nothing is
    estimated here.
    """
    axes = [(np.arange(count) + 0.5) / count for count in cells]
    seen = Counter(tuple(draw(frozen(uniforms)).tolist()) for uniforms in product(*axes))
    return {ranking: Fraction(count, seen.total()) for ranking, count in seen.items()}


def relation(n: int, above: Sequence[tuple[int, int]]) -> Array:
    certain = np.zeros((n, n), dtype=np.bool_)
    for i, j in above:
        certain[i, j] = True
    return frozen(certain, np.bool_)


def blocks(certain: Array, order: Sequence[int]) -> list[set[int]]:
    ends = certainty.block_ends(frozen(certain, np.bool_), positions(order))
    return [set(order[start:end]) for start, end in pairwise([0, *ends.tolist()])]


# Documents 1 … 5 of the paper's Figure 1 are 0 … 4 here: all pairs are certain but {1,2}, {3,5} and {4,5}.
FIGURE_1 = relation(5, [pair for pair in combinations(range(5), 2) if pair not in {(0, 1), (2, 4), (3, 4)}])


@given(
    n=st.integers(1, 8),
    d=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.01, 0.1, 0.5, 2.0]),
    logit=st.booleans(),
    seed=SEEDS,
)
def test_certain_pairs(n: int, d: int, alpha: float, logit: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.random((n, d)).round(1)
    features[n // 2] = features[0]
    theta, inverse = 3 * rng.normal(size=d), np.linalg.inv(spd(d, rng))
    scores = frozen(linear_scores(features.tolist(), theta.tolist()))
    own = frozen(rng.random(n) * rng.choice([0.001, 1.0])) if seed % 2 else NOTHING
    certain = certainty.certain_pairs(scores, frozen(features @ inverse @ features.T), own, alpha, logit)
    margins = np.array(naive.margins(features, theta, inverse, alpha, logit, own.tolist()))
    # On the bar itself the two ways to round may fall either way.
    clear = np.abs(margins) > 1e-7
    assert (certain == (margins > 0))[clear].all()
    assert not (certain & ~(scores[:, None] > scores[None, :])).any()


@pytest.mark.parametrize("logit", [False, True])
def test_a_norm_that_rounds_below_zero_is_zero(logit: bool) -> None:
    """Copies of one document have G_ii + G_jj - 2 G_ij = 0, which floats may miss on either side."""
    gram = frozen([[0.3, np.nextafter(0.3, 1)], [np.nextafter(0.3, 1), 0.3]])
    assert certainty.certain_pairs(frozen([1.0, 0.0]), gram, NOTHING, 5.0, logit).tolist() == [
        [False, True],
        [False, False],
    ]
    assert not certainty.certain_pairs(frozen([1.0, 1.0]), gram, NOTHING, 5.0, logit).any()


@pytest.mark.parametrize("logit", [False, True])
def test_scores_far_apart_stay_finite(logit: bool) -> None:
    scores, gram = frozen([1e3, -1e3, 0.0]), frozen(np.eye(3))
    certain = certainty.certain_pairs(scores, gram, NOTHING, 0.1, logit)
    assert certain.tolist() == [[False, True, True], [False, False, False], [False, True, False]]


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (1, 0, 2, 4, 3), (0, 1, 4, 2, 3)])
def test_figure_1_blocks(order: tuple[int, ...]) -> None:
    """{1, 2} and {3, 4, 5}, whichever score order stands behind the figure."""
    assert blocks(FIGURE_1, order) == naive.blocks(FIGURE_1) == [{0, 1}, {2, 3, 4}]


def test_figure_1_conservative_lists_keep_3_before_4() -> None:
    lists = law(lambda uniforms: certainty.random_topological(FIGURE_1, uniforms, 5), cells=(2, 1, 2, 2, 1))
    assert lists == naive.topological_orders(FIGURE_1, 5)
    assert all(ranking.index(2) < ranking.index(3) for ranking in lists)
    assert {frozenset(ranking[:2]) for ranking in lists} == {frozenset({0, 1})}


def test_figure_1_random_lists_do_not() -> None:
    order, ends = positions([0, 1, 2, 3, 4]), positions([2, 5])
    lists = law(lambda uniforms: certainty.shuffle_blocks(order, ends, uniforms, 5), cells=(2, 1, 3, 2, 1))
    assert lists == naive.shuffled_blocks([[0, 1], [2, 3, 4]], 5)
    assert len(lists) == 2 * 6


def test_what_is_sandwiched_joins() -> None:
    """1 and 3 are uncertain, 2 is certainly between them."""
    certain = relation(3, [(0, 1), (1, 2)])
    assert blocks(certain, (0, 1, 2)) == naive.blocks(certain) == [{0, 1, 2}]


def test_interval_blocks_are_the_blocks_of_definition_2() -> None:
    """1,500 random relations, transitive or not."""
    rng = np.random.default_rng(5)
    sizes: Counter[int] = Counter()
    for _ in range(1500):
        certain, order = naive.random_relation(int(rng.integers(1, 9)), rng.choice([0.3, 0.7, 0.9, 0.97]), rng)
        expected = naive.blocks(certain)
        assert blocks(certain, order.tolist()) == expected
        sizes[len(expected)] += 1
    assert all(sizes[count] > 20 for count in range(1, 7)), "the instances must cover few and many blocks"


@given(n=st.integers(1, 9), alpha=st.sampled_from([0.01, 0.05, 0.2]), logit=st.booleans(), seed=SEEDS)
def test_blocks_of_documents(n: int, alpha: float, logit: bool, seed: int) -> None:
    """Blocks from features, and conservative lists that go through them in turn."""
    rng = np.random.default_rng(seed)
    features, theta = rng.random((n, 3)), 4 * rng.normal(size=3)
    scores = features @ theta
    certain = certainty.certain_pairs(frozen(scores), frozen(features @ features.T), NOTHING, alpha, logit)
    expected = naive.blocks(certain)
    assert blocks(certain, np.argsort(-scores).tolist()) == expected
    shown = certainty.random_topological(frozen(certain, np.bool_), frozen(rng.random(n)), n).tolist()
    ends = accumulate(len(block) for block in expected)
    assert [set(shown[end - len(block) : end]) for block, end in zip(expected, ends, strict=True)] == expected


@pytest.mark.parametrize("sizes", [(1,), (4,), (1, 3), (3, 1), (2, 2), (1, 1, 2), (1, 2, 1), (1, 1, 1, 1)])
def test_shuffle_blocks_is_uniform(sizes: tuple[int, ...]) -> None:
    documents = [3, 0, 2, 1][: sum(sizes)]
    ends = np.cumsum(sizes).tolist()
    parts = [documents[start:end] for start, end in pairwise([0, *ends])]
    order, frozen_ends = positions(documents), positions(ends)
    for k in range(1, len(documents) + 1):
        assert law(partial(certainty.shuffle_blocks, order, frozen_ends, k=k), [12] * k) == naive.shuffled_blocks(
            parts, k
        )


def test_random_topological_on_every_relation_of_four() -> None:
    """All 64 relations that a score order of four documents allows, each over every way its choices can fall."""
    pairs = list(combinations(range(4), 2))
    for flags in product([False, True], repeat=len(pairs)):
        certain = relation(4, [pair for pair, flag in zip(pairs, flags, strict=True) if flag])
        for cells in ((12, 12), (12, 12, 12, 1)):
            draw = partial(certainty.random_topological, certain, k=len(cells))
            assert law(draw, cells) == naive.topological_orders(certain, len(cells))


def test_a_cut_beyond_the_list_shows_it_all() -> None:
    uniforms = frozen([0.9, 0.1, 0.5, 0.5, 0.5])
    assert sorted(certainty.shuffle_blocks(positions([2, 0, 1]), positions([3]), uniforms, 5).tolist()) == [0, 1, 2]
    assert sorted(certainty.random_topological(relation(3, []), uniforms, 5).tolist()) == [0, 1, 2]


# -- without pairs that cannot matter: the rule of probabilities, where certainty is not transitive -----------------


def tangent_case(n: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Scores, Gram matrix, squared lengths and radii about the mean of random tangent features."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(n, 3)) * rng.choice([0.1, 1.0, 3.0], (n, 1))
    gram = g @ g.T
    radii = np.sqrt(((g - g.mean(0)) ** 2).sum(1))
    return rng.normal(size=n).round(1) * rng.choice([0.3, 1.0, 4.0]), gram, np.diag(gram).copy(), radii


@given(n=st.integers(1, 9), alpha=st.sampled_from([0.0, 0.01, 0.05, 0.2]), seed=SEEDS)
def test_certain_over(n: int, alpha: float, seed: int) -> None:
    """All documents against all: the relation that PairRank's kernel finds from the same matrix."""
    scores, gram, squares, _ = tangent_case(n, seed)
    found = certainty.certain_over(frozen(scores), frozen(squares), frozen(gram), positions(range(n)), alpha)
    expected = certainty.certain_pairs(frozen(scores), frozen(gram), NOTHING, alpha, False)
    assert found.tolist() == expected.tolist()


@given(n=st.integers(1, 7), k=st.integers(1, 4), alpha=st.sampled_from([0.0, 0.01, 0.03, 0.1]), seed=SEEDS)
def test_leaving_out_who_cannot_come_up_changes_no_list(n: int, k: int, alpha: float, seed: int) -> None:
    """The law of the first k among those left is the law among all, exactly."""
    scores, gram, squares, radii = tangent_case(n, seed)
    some = certainty.possible(frozen(scores), frozen(radii), alpha, k)
    certain = certainty.certain_over(frozen(scores), frozen(squares), frozen(gram[:, some]), positions(some), alpha)
    free = certainty.reachable(frozen(certain, np.bool_), positions(some))
    running = some[free]
    part = naive.topological_orders(certain[running][:, free], min(k, n))
    whole = naive.topological_orders(
        certainty.certain_pairs(frozen(scores), frozen(gram), NOTHING, alpha, False), min(k, n)
    )
    assert {tuple(int(running[i]) for i in order): chance for order, chance in part.items()} == whole


@given(n=st.integers(1, 7), k=st.integers(1, 4), alpha=st.sampled_from([0.0, 0.1, 0.5]), seed=SEEDS)
def test_contenders_are_all_who_can_come_up(n: int, k: int, alpha: float, seed: int) -> None:
    """With widths of their own or without: the law of the first k among contenders is that among all, exactly."""
    rng = np.random.default_rng(seed)
    rows, scores = rng.normal(size=(n, 2)), frozen(3 * rng.normal(size=n))
    own = frozen(rng.random(n) * rng.choice([0.01, 1.0])) if seed % 2 else NOTHING
    norms = frozen(np.sqrt((rows**2).sum(1)))
    whole = certainty.certain_pairs(scores, frozen(rows @ rows.T), own, alpha, True)
    some = certainty.contenders(scores, norms, own, alpha, k)
    part = naive.topological_orders(whole[np.ix_(some, some)], min(k, n))
    found = {tuple(int(some[i]) for i in order): chance for order, chance in part.items()}
    assert found == naive.topological_orders(whole, min(k, n))


def test_own_widths_are_added_as_squares() -> None:
    """Two units apart, each uncertain by 1: radii would touch, √(1 + 1) is less."""
    scores, norms = frozen([1.9, 0.0]), frozen([0.0, 0.0])
    assert certainty.contenders(scores, norms, frozen([1.0, 1.0]), 0.3, 1).tolist() == [0]
    assert certainty.contenders(frozen([1.4, 0.0]), norms, frozen([1.0, 1.0]), 0.3, 1).tolist() == [0, 1]


def test_long_lists_are_cut() -> None:
    """Of a hundred documents far apart only the first ten can come up."""
    scores, radii = frozen(np.arange(100.0)), frozen(np.full(100, 0.1))
    assert certainty.possible(scores, radii, 0.1, 10).tolist() == list(range(90, 100))
    assert certainty.possible(scores, radii, 100.0, 10).tolist() == list(range(100))


def test_who_waits_for_one_that_never_comes_does_not_come_either() -> None:
    """0 is certain over 1, 1 over 2; 0 is not among those that can come up."""
    certain = relation(3, [(0, 1), (1, 2)])
    assert certainty.reachable(frozen(certain[:, 1:], np.bool_), positions([1, 2])).tolist() == [False, False]
    assert certainty.reachable(frozen(certain[:, 2:], np.bool_), positions([2])).tolist() == [False]
    assert certainty.reachable(certain, positions([0, 1, 2])).tolist() == [True, True, True]


@given(members=st.integers(1, 4), n=st.integers(1, 6), seed=SEEDS)
def test_an_ensemble_is_certain_where_all_agree(members: int, n: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(members, n)).round(0)
    found = certainty.agreed_pairs(frozen(scores))
    assert found.tolist() == [[all(s[i] > s[j] for s in scores) for j in range(n)] for i in range(n)]


# -- long lists: pair by pair, without a matrix of all pairs --------------------------------------------------------


@given(
    n=st.integers(1, 9),
    d=st.sampled_from([1, 3, 4, 19]),
    alpha=st.sampled_from([0.0, 0.01, 0.05, 0.2, 1.0]),
    logit=st.booleans(),
    k=st.integers(1, 12),
    seed=SEEDS,
)
def test_long_lists_are_drawn_as_short_ones(n: int, d: int, alpha: float, logit: bool, k: int, seed: int) -> None:
    """Predecessors, lists, propensities, shares and blocks: those of the whole relation, with the same numbers."""
    rng = np.random.default_rng(seed)
    features = rng.random((n, d)).round(2)
    features[n // 2] = features[0]  # a copy is never certain against its original
    root = np.linalg.cholesky(np.linalg.inv(spd(d, rng)))
    white, scores = frozen(features @ root), frozen(np.round(features @ (4 * rng.normal(size=d)), 6))
    certain = relation_of(white, scores, alpha, logit)
    ranked, k = positions(np.argsort(-scores, kind="stable")), min(k, n)
    bar = (alpha, logit)

    waiting = predecessors(white, scores, ranked, *bar, k)
    assert waiting.tolist() == np.minimum(certain.sum(0), k).tolist()
    uniforms = frozen(rng.random(k))
    order, above = long_lists.long_random_topological(white, scores, waiting, *bar, uniforms, k)
    assert order.tolist() == certainty.random_topological(certain, uniforms, k).tolist()
    assert above.tolist() == long_lists.successors(white, scores, waiting, *bar, order).tolist()
    assert (above <= certain[order]).all()
    other = positions(rng.permutation(n)[:k])
    for asked in (order, other):
        to = long_lists.successors(white, scores, waiting, *bar, asked)
        expected = certainty.topological_log_probability(certain, asked)
        assert certainty.drawn_log_probability(waiting, to, asked) == expected
        assert np.exp(expected) == pytest.approx(naive.list_probability(certain, asked.tolist()))
    shares = certainty.topological_swap_shares(certain, order)
    assert certainty.swap_shares(waiting, above, order).tolist() == shares.tolist()

    ends = certainty.block_ends(certain, ranked)
    first = long_lists.long_block_ends(white, scores, ranked, *bar, k)
    assert first[-1] >= k
    assert first.tolist() == ends[: first.size].tolist()
    assert long_lists.long_block_ends(white, scores, ranked, *bar, n).tolist() == ends.tolist()
    for asked in (order, other):
        expected = certainty.block_log_probability(ranked, ends, asked)
        assert certainty.block_log_probability(ranked, first, asked) == expected


def relation_of(white: Array, scores: Array, alpha: float, logit: bool) -> Array:
    """The certain relation by its definition, a pair at a time."""
    n = len(white)
    certain = np.zeros((n, n), np.bool_)
    for i, j in product(range(n), range(n)):
        gap = scores[i] - scores[j]
        bar = alpha * np.sqrt(((white[i] - white[j]) ** 2).sum())
        certain[i, j] = gap > 0 and (gap if logit else np.tanh(gap / 2) / 2) > bar
    return frozen(certain, np.bool_)


def test_a_pair_is_given_up_only_where_it_is_not_certain() -> None:
    """40 columns: the bar is passed in the first, in the last or not at all."""
    scores, alpha = frozen([1.0, 0.0]), 1.0
    for column, length, sure in [(0, 0.9, True), (0, 1.1, False), (39, 0.9, True), (39, 1.1, False), (17, 1.0, False)]:
        white = np.zeros((2, 40))
        white[0, column] = length
        assert long_lists.surely_above(frozen(white), scores, 0, 1, alpha, True) is sure
        assert not long_lists.surely_above(frozen(white), scores, 1, 0, alpha, True)


@pytest.mark.parametrize("logit", [True, False])
@pytest.mark.parametrize("scale", [0.02, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("far", [1.0, 1e4, 1e25])
def test_predecessors_over_several_blocks(
    logit: bool, scale: float, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More documents than are compared at a time, copies among them, from hardly anything certain to nearly all.

    One document lies far from all others: further than single precision can square, too.
    """
    for name, value in (("BLOCK", 50), ("FIRST", 20), ("WIDTHS", (2, 3)), ("SAMPLE", 60)):
        monkeypatch.setattr(elimination, name, value)
    rng, n, k = np.random.default_rng(3), 140, 5
    white = rng.normal(size=(n, 7)) + 100.0  # far from the origin: single precision must not mind
    white[n // 2] = white[0]
    scores = scale * (white[:, 0] - 100.0)
    white[7] *= far
    certain = relation_of(white, scores, 0.2, logit)
    found = predecessors(frozen(white), frozen(scores), positions(np.argsort(-scores)), 0.2, logit, k)
    assert found.tolist() == np.minimum(certain.sum(0), k).tolist()


@pytest.mark.parametrize("width", [12, 28, 60, 100])
def test_a_few_columns_never_hide_a_certain_pair(width: int) -> None:
    """Products over some columns say of each two documents what their rows do, or more, by less than the doubts."""
    rng, alpha = np.random.default_rng(width), 0.3
    rows = rng.normal(size=(80, 100)) * np.geomspace(1.0, 0.01, 100)
    rows -= rows.mean(0)
    scores = np.sort(rng.normal(size=80))[::-1].copy()
    forms = elimination._Forms(rows, (rows**2).sum(1), scores, np.arange(80), alpha, True)
    flipped = forms.of_width(width).copy()
    flipped[:, :3] = flipped[:, [1, 0, 2]] * (1.0, 1.0, -1.0)
    found = (flipped @ forms.of_width(width).T) * forms.unit**2
    gaps, away = np.subtract.outer(scores, scores), rows[:, None] - rows[None]
    lengths = np.sqrt((rows[:, width:] ** 2).sum(1))
    seen = (away[:, :, :width] ** 2).sum(2) + np.subtract.outer(lengths, lengths) ** 2
    doubts = 2.0 * forms.unit**2 * np.add.outer(forms.doubts, forms.doubts)
    assert (found >= gaps**2 - alpha**2 * seen).all()
    assert (found <= gaps**2 - alpha**2 * seen + doubts).all()
    assert (seen <= (away**2).sum(2) + 1e-12).all()


def test_a_turn_changes_no_distance_and_puts_the_scores_first() -> None:
    rng = np.random.default_rng(4)
    rows, root, theta = rng.normal(size=(500, 9)), np.linalg.cholesky(spd(9, rng)), rng.normal(size=9)
    half = np.linalg.solve(root, theta)
    found = elimination.rotated(root, half, rows)
    assert found @ found.T == pytest.approx(root @ root.T)
    first = np.linalg.solve(found, theta)
    assert abs(first[0]) == pytest.approx(np.sqrt(half @ half))
    assert first[1:] == pytest.approx(np.zeros(8), abs=1e-9)
    spread = (rows @ found)[:, 1:].var(0)
    assert spread[0] > 2 * spread[-1]


def test_a_pair_on_the_bar_is_asked_exactly() -> None:
    """Gap and distance agree to ten digits; single precision has seven."""
    for gap, sure in [(1.0 + 1e-10, 1), (1.0 - 1e-10, 0)]:
        white, scores = frozen([[0.0, 0.0], [0.6, 0.8]]), frozen([gap, 0.0])
        assert predecessors(white, scores, positions([0, 1]), 1.0, True, 3).tolist() == [0, sure]


@given(st.integers(1, 9), st.integers(1, 5), SEEDS)
def test_rows_less_their_mean_and_their_norms(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, matrix = frozen(rng.normal(size=(n, d))), spd(d, rng)
    centred = certainty.centred_rows(rows)
    assert centred == pytest.approx(rows - rows.mean(0), abs=1e-12)
    lengths = [math.sqrt(max(float(row @ matrix @ row), 0.0)) for row in centred]
    assert certainty.row_norms(frozen(centred @ matrix), frozen(centred)) == pytest.approx(lengths, abs=1e-9)
