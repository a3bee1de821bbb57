"""Fitted numbers come to the truth as 1/√n, and stand where the published updates stand still."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from rankloop.clicks import MODELS, ClickModel, DependentClick, SimplifiedDBN
from rankloop.clicks.em import browse
from rankloop.core.types import Array
from tests.clicks.truths import RANKS, identified, pages, truth
from tests.reference import click_models as naive

pytestmark = pytest.mark.slow

SIZES = (1_000, 4_000, 16_000)
SEEDS = range(4)


def error(fitted: ClickModel, true: ClickModel) -> float:
    apart = identified(fitted.name, fitted) - identified(true.name, true)
    return float(np.sqrt((apart**2).mean()))


@pytest.mark.parametrize("name", MODELS)
def test_errors_fall_as_one_over_the_root_of_the_pages(name: str) -> None:
    true, errors = truth(name), []
    for size in SIZES:
        here = []
        for seed in SEEDS:
            rng = np.random.default_rng([seed, size])
            log = true.simulate(pages(size, rng), rng)
            here.append(error(MODELS[name]().fit(log), true) ** 2)
        errors.append(np.sqrt(np.mean(here)))
    slope = np.polyfit(np.log(SIZES), np.log(errors), 1)[0]
    assert -0.7 < slope < -0.33, errors
    assert errors[-1] < 0.03


@pytest.mark.parametrize("kind", [DependentClick, SimplifiedDBN])
def test_the_published_closed_form_does_not_come_to_the_truth(kind: type[DependentClick | SimplifiedDBN]) -> None:
    """It takes the last click for the end: its error stays, and the likelihood's maximum has a tenth of it."""
    true, rng = truth(kind.name), np.random.default_rng(3)
    errors = []
    for size in (10_000, 40_000):
        log = true.simulate(pages(size, rng), rng)
        errors.append((error(kind(exact=False).fit(log), true), error(kind().fit(log), true)))
    (before, _), (after, exact) = errors
    assert after == pytest.approx(before, rel=0.1)
    assert after > 10 * exact


# -- the published updates stand still -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dcm", "sdbn", "dbn", "ccm", "pbm", "ubm"])
def test_a_fit_ends_where_an_update_changes_nothing(name: str) -> None:
    """One more update, by going through every way each page can have come about, gives the same numbers."""
    true, rng = truth(name, 2), np.random.default_rng(1)
    log = true.simulate(pages(60, rng, shortest=2), rng)
    prior, tolerance = 5.0, 1e-10
    if name in ("pbm", "ubm"):  # before examination is made relative to its largest
        attraction, examination, _ = browse(log, 1 if name == "pbm" else RANKS, prior, tolerance, 20_000, None)
        examination = examination[:, 0] if name == "pbm" else examination
        found: Any = MODELS[name]().given(log.pairs, attraction_=attraction, examination_=examination)
    else:
        found = MODELS[name](prior=prior, tolerance=tolerance, iterations=20_000).fit(log)  # type: ignore[call-arg]
    stories = [story(found, log.shown[i, : log.lengths[i]]) for i in range(len(log))]
    clicks = [tuple(log.clicks[i, : log.lengths[i]] > 0) for i in range(len(log))]
    counts = naive.expected_counts(stories, clicks, [row[row >= 0].tolist() for row in log.shown])

    documents = range(len(log.pairs))
    looked = counts["shown"] if name in ("pbm", "ubm") else counts["examined"]
    attracted = np.array([[counts["attracted"][d], looked[d]] for d in documents])
    if name == "ccm":  # relevant after the click is a second draw
        attracted += gathered(counts["satisfied"], len(documents), 0)
    assert found.attraction_[:-1] == pytest.approx(drawn_to_the_mean(attracted, prior), abs=1e-7)
    flow = counts["flow"]
    if name == "pbm":
        assert found.examination_ == pytest.approx(pulled(gathered(counts["looks"], RANKS, 0)), abs=1e-7)
    elif name == "ubm":
        for (r, last), cell in counts["looks"].items():
            assert found.examination_[r, 0 if last is None else last + 1] == pytest.approx(pulled(cell), abs=1e-7)
    elif name == "dcm":
        assert found.stop_ == pytest.approx(pulled(gathered(counts["satisfied"], RANKS, 1)), abs=1e-7)
    elif name == "ccm":
        wanted = [float(pulled(flow[state])) for state in ("skipped", "unsatisfied", "satisfied")]
        assert found.continuation_ == pytest.approx(wanted, abs=1e-7)
    else:
        satisfied = gathered(counts["satisfied"], len(documents), 0)
        assert found.satisfaction_[:-1] == pytest.approx(drawn_to_the_mean(satisfied, prior), abs=1e-7)
    if name == "dbn":
        assert found.continuation_[0] == pytest.approx(pulled(np.add(flow["unsatisfied"], flow["skipped"])), abs=1e-7)


def gathered(cells: dict[tuple[int, int], list[float]], size: int, which: int) -> Array:
    """(size, 2) counts and totals, by the first or the second of what the cells are named by."""
    found = np.zeros((size, 2))
    for key, cell in cells.items():
        found[key[which]] += cell
    return found


def pulled(counts: ArrayLike) -> Array:
    """By rank: one more that counted and one more that did not."""
    cells = np.asarray(counts)
    return np.asarray((cells[..., 0] + 1) / (cells[..., 1] + 2))


def drawn_to_the_mean(counts: Array, prior: float) -> Array:
    """By pair: `prior` more of which the mean of all counted."""
    mean = counts[:, 0].sum() / counts[:, 1].sum()
    return np.asarray((counts[:, 0] + prior * mean) / (counts[:, 1] + prior))


def story(model: ClickModel, pairs: Array) -> naive.Story:
    """The story of one page under a fitted model."""
    numbers = {name: getattr(model, name) for name in model.learned}
    a = numbers["attraction_"][pairs].tolist()
    if model.name == "pbm":
        return naive.position_based(a, numbers["examination_"].tolist())
    if model.name == "ubm":
        table = numbers["examination_"]
        return naive.browsing(a, lambda r, last: float(table[r, 0 if last is None else last + 1]))
    if model.name == "dcm":
        return naive.dependent_click(a, numbers["stop_"].tolist())
    if model.name == "ccm":
        return naive.click_chain(a, *numbers["continuation_"].tolist())
    s = numbers["satisfaction_"][pairs].tolist()
    if model.name == "sdbn":
        return naive.simplified_dbn(a, s)
    return naive.dynamic_bayesian(a, s, float(numbers["continuation_"][0]))


def test_closed_forms_are_counts() -> None:
    """Cascade: clicks among looks down to the first click; rates: clicks among displays. Each drawn to the mean."""
    rng = np.random.default_rng(4)
    log = truth("ubm").simulate(pages(200, rng, shortest=1), rng)
    for name in ("cm", "ctr-document"):
        looked, clicked = np.zeros(len(log.pairs)), np.zeros(len(log.pairs))
        for i in range(len(log)):
            for r in range(log.lengths[i]):
                looked[log.shown[i, r]] += 1
                clicked[log.shown[i, r]] += log.clicks[i, r]
                if log.clicks[i, r] and name == "cm":
                    break
        mean = clicked.sum() / looked.sum()
        model = MODELS[name](prior=3.0).fit(log)  # type: ignore[call-arg]
        assert model.attraction_[:-1] == pytest.approx((clicked + 3 * mean) / (looked + 3))  # type: ignore[attr-defined]
        assert model.attraction_[-1] == pytest.approx(mean)  # type: ignore[attr-defined]
    by_rank = [log.clicks[log.lengths > r, r].mean() for r in range(RANKS)]
    assert MODELS["ctr-rank"]().fit(log).rate_ == pytest.approx(by_rank)  # type: ignore[attr-defined]
    share = log.clicks.sum() / log.lengths.sum()
    assert MODELS["ctr"]().fit(log).rate_ == pytest.approx([share])  # type: ignore[attr-defined]


def test_fits_repeat_bit_for_bit_and_forget_what_was_before() -> None:
    rng = np.random.default_rng(0)
    log = truth("dbn").simulate(pages(300, rng), rng)
    other = truth("ubm").simulate(pages(50, rng, shortest=1), rng)
    for kind in MODELS.values():
        once, again = kind().fit(log), kind().fit(other).fit(log)
        for key in kind.learned:
            assert getattr(once, key).tobytes() == getattr(again, key).tobytes()
        assert once.trace_.tobytes() == again.trace_.tobytes()
