"""Click-model kernels against all ways that a page can go."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.core.types import Array
from rankloop.kernels import click_fits, click_models
from rankloop.kernels.click_models import BROWSING, CASCADE, CHAIN, POSITION, ClickParameters
from tests.kernels.inputs import SEEDS, frozen, positions
from tests.reference import click_models as naive

ONE, TABLE = frozen([1.0]), frozen([[1.0]])


class World:
    """Random numbers for n documents and m ranks, in which 0 and 1 are common, as each model's own and as packed."""

    def __init__(self, rng: np.random.Generator, n: int, m: int, *, inside: bool = False) -> None:
        def draw(*shape: int) -> Array:
            values = rng.random(shape)
            if not inside:
                values = np.where(rng.random(shape) < 0.2, np.round(values), values)
            return frozen(values)

        self.a, self.s, self.stop, self.e, self.table = draw(n), draw(n), draw(m), draw(m), draw(m, m)
        self.g, (self.skip, self.bad, self.good) = float(draw(1)[0]), (float(x) for x in draw(3))

    def packed(self, name: str) -> ClickParameters:
        zeros, ones = frozen(np.zeros(len(self.a))), frozen(np.ones(len(self.a)))
        after = frozen(self.bad * (1 - self.a) + self.good * self.a)
        return {
            "cm": ClickParameters(CASCADE, self.a, zeros, ONE, 1.0, TABLE),
            "dcm": ClickParameters(CHAIN, self.a, ones, frozen(1 - self.stop), 1.0, TABLE),
            "pbm": ClickParameters(POSITION, self.a, ONE, ONE, 1.0, frozen(self.e[:, None])),
            "ubm": ClickParameters(BROWSING, self.a, ONE, ONE, 1.0, self.table),
            "sdbn": ClickParameters(CHAIN, self.a, frozen(1 - self.s), ONE, 1.0, TABLE),
            "dbn": ClickParameters(CHAIN, self.a, frozen(self.g * (1 - self.s)), ONE, self.g, TABLE),
            "ccm": ClickParameters(CHAIN, self.a, after, ONE, self.skip, TABLE),
        }[name]

    def story(self, name: str, shown: Array) -> naive.Story:
        a, s = self.a[shown].tolist(), self.s[shown].tolist()
        k, table = len(a), self.table
        stories: dict[str, Callable[[], naive.Story]] = {
            "cm": lambda: naive.cascade(a),
            "dcm": lambda: naive.dependent_click(a, self.stop[:k].tolist()),
            "pbm": lambda: naive.position_based(a, self.e.tolist()),
            "ubm": lambda: naive.browsing(a, lambda r, last: float(table[r, 0 if last is None else last + 1])),
            "sdbn": lambda: naive.simplified_dbn(a, s),
            "dbn": lambda: naive.dynamic_bayesian(a, s, self.g),
            "ccm": lambda: naive.click_chain(a, self.skip, self.bad, self.good),
        }
        return stories[name]()


NAMES = ("cm", "dcm", "pbm", "ubm", "sdbn", "dbn", "ccm")


def chances(user: ClickParameters, shown: Array) -> tuple[Array, Array]:
    examined, clicked = np.full(len(shown), np.nan), np.full(len(shown), np.nan)
    click_models.chances(user, shown, examined, clicked, np.full(len(shown) + 1, np.nan))
    return examined, clicked


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(SEEDS, st.integers(1, 4))
def test_chances_are_those_of_all_pages(name: str, seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    world, shown = World(rng, 6, 4), positions(rng.permutation(6)[:k])
    examined, clicked = chances(world.packed(name), shown)
    wanted = naive.examined_and_clicked(world.story(name, shown))
    assert examined.tolist() == pytest.approx(wanted[0], abs=1e-12)
    assert clicked.tolist() == pytest.approx(wanted[1], abs=1e-12)
    for n in range(k + 2):
        total = click_models.expected_clicks(world.packed(name), shown, n, np.full((3, k + 1), np.nan))
        assert total == pytest.approx(sum(wanted[1][:n]), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(SEEDS, st.integers(1, 4))
def test_chances_given_the_clicks_above_are_those_of_all_pages(name: str, seed: int, k: int) -> None:
    """And their product is the probability of the page."""
    rng = np.random.default_rng(seed)
    world, shown = World(rng, 6, 4), positions(rng.permutation(6)[:k])
    story, user = world.story(name, shown), world.packed(name)
    pages, total = naive.page_chances(story), 0.0
    for clicks in itertools.product([False, True], repeat=k):
        found = np.full(k, np.nan)
        click_models.conditional(user, shown, frozen(clicks), found)
        wanted = naive.conditional(story, clicks)
        for here, there in zip(found.tolist(), wanted, strict=True):
            if there is None:
                break  # what cannot be has no probability given
            assert here == pytest.approx(there, abs=1e-9)
        product = float(np.prod(np.where(clicks, found, 1 - found)))
        assert product == pytest.approx(pages.get(clicks, 0.0), abs=1e-12)
        total += product
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_simulated_clicks_come_as_often_as_the_pages_are_probable(name: str) -> None:
    rng = np.random.default_rng(5)
    rounds, world, shown = 40_000, World(rng, 6, 4, inside=True), positions([4, 1, 0, 5])
    clicks, user = np.full((rounds, 4), np.nan), world.packed(name)
    pages = np.broadcast_to(shown, (rounds, 4))
    click_fits.react_pages(user, frozen(pages, np.int64), positions([4] * rounds), rng.random((rounds, 2, 4)), clicks)
    for page, probability in naive.page_chances(world.story(name, shown)).items():
        share = float((clicks == np.array(page)).all(axis=1).mean())
        assert abs(share - probability) <= 4.5 * np.sqrt(probability * (1 - probability) / rounds) + 1e-12


# -- over logs -----------------------------------------------------------------------------------------------------


def random_log(rng: np.random.Generator, world: World, name: str, pages: int) -> tuple[Array, Array, Array]:
    """Pages of 1 to 4 documents with clicks that the model can make."""
    shown = np.array([rng.permutation(6)[:4] for _ in range(pages)])
    lengths, clicks = rng.integers(1, 5, pages), np.zeros((pages, 4))
    shown[np.arange(4) >= lengths[:, None]] = -1
    click_fits.react_pages(world.packed(name), shown, lengths, rng.random((pages, 2, 4)), clicks)
    return frozen(shown, np.int64), positions(lengths), frozen(clicks, np.uint8)


def told(world: World, name: str, log: tuple[Array, Array, Array]) -> dict[str, object]:
    shown = [row[:length] for row, length in zip(log[0], log[1], strict=True)]
    clicks = [tuple(row[:length] > 0) for row, length in zip(log[2], log[1], strict=True)]
    stories = [world.story(name, row) for row in shown]
    counts = naive.expected_counts(stories, clicks, [row.tolist() for row in shown])
    total = sum(np.log(naive.page_chances(story)[page]) for story, page in zip(stories, clicks, strict=True))
    return {**counts, "log_likelihood": total}


@pytest.mark.parametrize("name", ["dcm", "sdbn", "dbn", "ccm"])
@settings(max_examples=25)
@given(SEEDS)
def test_expected_counts_of_readers_from_the_top(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World(rng, 6, 4, inside=True)
    log = random_log(rng, world, name, 6)
    by_rank = name == "dcm"
    satisfaction = {"dcm": world.stop, "ccm": world.a}.get(name, world.s)
    stay = {"dbn": [0.0, world.g, world.g], "ccm": [world.good, world.bad, world.skip]}.get(name, [0.0, 1.0, 1.0])
    examined, satisfied, flow = np.full(6, 9.0), np.full(len(satisfaction), 9.0), np.full((3, 2), 9.0)
    asked = np.full(len(satisfaction), 9.0)
    total = click_fits.chain_counts(
        world.a, satisfaction, by_rank, frozen(stay), *log, examined, satisfied, asked, flow
    )
    wanted: dict[str, object] = told(world, name, log)
    assert total == pytest.approx(wanted["log_likelihood"])
    assert examined.tolist() == pytest.approx([wanted["examined"][d] for d in range(6)])  # type: ignore[index]
    places: dict[int, list[float]] = {place: [0.0, 0.0] for place in range(len(satisfaction))}
    for (document, rank), (happy, clicks) in wanted["satisfied"].items():  # type: ignore[attr-defined]
        places[rank if by_rank else document][0] += happy
        places[rank if by_rank else document][1] += clicks
    assert satisfied.tolist() == pytest.approx([happy for happy, _ in places.values()])
    assert asked.tolist() == pytest.approx([clicks for _, clicks in places.values()])
    states = ("satisfied", "unsatisfied", "skipped")
    assert flow.tolist() == [pytest.approx(wanted["flow"][state], abs=1e-12) for state in states]  # type: ignore[index]


@pytest.mark.parametrize("name", ["pbm", "ubm"])
@settings(max_examples=25)
@given(SEEDS)
def test_expected_counts_of_browsers(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World(rng, 6, 4, inside=True)
    log = random_log(rng, world, name, 6)
    examination = world.packed(name).examination
    columns = examination.shape[1]
    attracted, examined = np.full(6, 9.0), np.full((4, columns), 9.0)
    total = click_fits.browsing_counts(world.a, examination, *log, attracted, examined)
    shows = click_fits.browsing_shows(log[1], log[2], columns)
    wanted = told(world, name, log)
    assert total == pytest.approx(wanted["log_likelihood"])
    assert attracted.tolist() == pytest.approx([wanted["attracted"][d] for d in range(6)])  # type: ignore[index]
    looks = np.zeros((2, 4, columns))
    for (rank, last), counts in wanted["looks"].items():  # type: ignore[attr-defined]
        looks[:, rank, 0 if last is None or columns == 1 else last + 1] += counts
    assert examined == pytest.approx(looks[0])
    assert shows == pytest.approx(looks[1])


@given(SEEDS)
def test_readers_until_the_first_and_the_last_click(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log = random_log(rng, World(rng, 6, 4, inside=True), "ubm", 8)
    for until in (0, 1, 2):
        read, clicked = click_fits.shown_and_clicked(*log, until, 6)
        wanted = np.zeros((2, 6))
        for shown, length, clicks in zip(*log, strict=True):
            at = [r for r in range(length) if clicks[r]]
            end = length if not at or until == 0 else at[0] + 1 if until == 1 else at[-1] + 1
            for r in range(end):
                wanted[:, shown[r]] += (1, clicks[r])
        assert read.tolist() == wanted[0].tolist()
        assert clicked.tolist() == wanted[1].tolist()
    for by_rank, size in ((True, 4), (False, 6)):
        last, total = click_fits.last_clicks(*log, by_rank, size)
        ends = np.zeros((2, size))
        for shown, length, clicks in zip(*log, strict=True):
            places = [r if by_rank else shown[r] for r in range(length) if clicks[r]]
            for place in places:
                ends[1, place] += 1
            for place in places[-1:]:
                ends[0, place] += 1
        assert last.tolist() == ends[0].tolist()
        assert total.tolist() == ends[1].tolist()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(SEEDS)
def test_scores_are_sums_over_pages(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World(rng, 6, 4)
    shown, lengths, _ = random_log(rng, world, name, 6)
    clicks = frozen(rng.random((6, 4)) < 0.4, np.uint8)  # not the model's own: some pages cannot be
    floor, user = 1e-3, world.packed(name)
    pages, bits, conditional_bits, total, impossible = click_fits.score_pages(user, shown, lengths, clicks, floor)
    wanted = np.zeros((3, 4))
    surprised, likelihood = 0, 0.0
    for row, length, flags in zip(shown, lengths, clicks, strict=True):
        before, given = chances(user, row[:length])[1], np.empty(length)
        click_models.conditional(user, row[:length], flags[:length], given)
        happened = np.where(flags[:length], given, 1 - given)
        surprised += bool((happened <= 0).any())
        likelihood += float(np.log(np.clip(happened, floor, 1 - floor)).sum())
        wanted[0, :length] += 1
        wanted[1, :length] -= np.log2(np.clip(np.where(flags[:length], before, 1 - before), floor, 1 - floor))
        wanted[2, :length] -= np.log2(np.clip(happened, floor, 1 - floor))
    assert pages.tolist() == wanted[0].tolist()
    assert bits.tolist() == pytest.approx(wanted[1].tolist())
    assert conditional_bits.tolist() == pytest.approx(wanted[2].tolist())
    assert total == pytest.approx(likelihood)
    assert impossible == surprised
