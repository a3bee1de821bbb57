"""From clicks on mixed lists to a preference: a fold, whatever the portions, that reacts when a good ranking breaks."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.evaluation.sequential import ConfidenceSequence, samples_needed
from rankloop.service.storage.experiments import InterleavedOutcome, Tally
from rankloop.service.training import evidence
from rankloop.service.training.evidence import fold, forecast, rate, score

CREDIT = st.sampled_from([1.0, -1.0, 0.0, 0.25, -0.7])


@given(data=st.data(), k=st.integers(1, 6))
def test_a_score_is_the_mean_credit_of_the_clicks(data: st.DataObject, k: int) -> None:
    credit = data.draw(st.lists(CREDIT, min_size=k, max_size=k))
    clicks = data.draw(st.lists(st.sampled_from([0.0, 1.0]), max_size=k))
    clicked = [side for side, click in zip(credit, clicks, strict=False) if click]
    found = score(credit, clicks)
    assert found == pytest.approx(sum(clicked) / len(clicked) if clicked else 0.0)
    assert -1.0 <= found <= 1.0
    assert score([-side for side in credit], clicks) == -found


def test_grades_weight_the_score() -> None:
    assert score([1.0, -1.0, 0.0], [3.0, 1.0, 4.0]) == 0.25
    assert score([1.0, -1.0], [0.0, 0.0]) == 0.0


def seen(values: list[float], when: float = 0.0) -> list[InterleavedOutcome]:
    """Lists that come to these values."""
    return [InterleavedOutcome(i, [value, 0.0], [1.0], when + i) for i, value in enumerate(values)]


def followed(values: list[float], alpha: float = 0.05, guardrail: bool = False) -> Tally:
    tally = Tally()
    fold(tally, seen(values), alpha, guardrail)
    return tally


@settings(max_examples=25)
@given(
    values=st.lists(st.sampled_from([1.0, -1.0, 0.0, -0.5]), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=3),
    guardrail=st.booleans(),
)
def test_the_fold_does_not_depend_on_portions(values: list[float], cuts: list[int], guardrail: bool) -> None:
    """Through JSON and back between them, as the store does; to the last bit."""
    whole = Tally()
    taken = fold(whole, seen(values), 0.3, guardrail)
    lists, parts, done = seen(values), Tally(), 0
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(values)], strict=True):
        if parts.verdict == "worse" and guardrail:
            break
        done += fold(parts, lists[start:end], 0.3, guardrail)
        parts = msgspec.json.decode(msgspec.json.encode(parts), type=Tally)
    assert done == taken
    assert msgspec.json.encode(parts) == msgspec.json.encode(whole)


def test_the_tally_agrees_with_the_confidence_sequence() -> None:
    rng = np.random.default_rng(1)
    values = rng.choice([1.0, 0.0, -1.0], size=2000, p=[0.2, 0.7, 0.1]).tolist()
    tally, watch, whole = followed(values), ConfidenceSequence(0.05), ConfidenceSequence(0.05)
    whole.add(values)
    at = int(whole.crossed_[0])
    watch.add(values[:at])
    assert (tally.lists, tally.wins, tally.losses) == (2000, values.count(1.0), values.count(-1.0))
    assert (tally.verdict, watch.verdict) == ("better", "above")
    assert tally.evidence is not None
    assert (tally.evidence.lists, tally.evidence.when) == (at, at - 1.0)
    assert tally.evidence.preference == pytest.approx(np.mean(values[:at]))
    assert tally.evidence.interval == watch.interval()
    assert tally.evidence.interval[0] > 0.0
    watch.add(values[at:])
    assert evidence.watched(tally, 0.05).interval() == watch.interval()


def test_a_guardrail_stops_where_the_base_order_is_preferred() -> None:
    values = [0.0, -1.0] * 30
    tally = Tally()
    taken = fold(tally, seen(values), 0.05, True)
    assert taken == tally.lists < len(values)
    assert tally.verdict == "worse"
    assert tally.evidence is not None
    assert tally.evidence.interval[1] < 0.0
    assert followed(values[: taken - 1], guardrail=True).verdict == "undecided"
    assert fold(Tally(), seen(values), 0.05, False) == len(values)  # an experiment goes on


def test_a_guardrail_notices_a_good_ranking_that_breaks() -> None:
    """After 3000 good lists, all that count together would take a thousand bad ones; a fresh watch does not."""
    rng = np.random.default_rng(2)
    good = rng.choice([1.0, 0.0, -1.0], size=3000, p=[0.3, 0.6, 0.1]).tolist()
    bad = rng.choice([1.0, 0.0, -1.0], size=3000, p=[0.1, 0.6, 0.3]).tolist()
    tally = Tally()
    assert fold(tally, seen(good), 0.05, True) == 3000
    assert str(tally.verdict) == "better"
    taken = fold(tally, seen(bad), 0.05, True)
    assert tally.verdict == "worse"
    assert taken < 300
    assert tally.evidence is not None
    assert tally.evidence.lists <= taken + 2 * evidence.FRESH
    whole = ConfidenceSequence(0.05)
    whole.add(good)
    whole.add(bad[: 3 * taken])
    assert not whole.crossed_[1]


def test_an_equal_ranker_is_rarely_demoted() -> None:
    """60 deployments of 1200 lists, with five fresh watches each; alpha .2."""
    rng, demoted = np.random.default_rng(3), 0
    for _ in range(60):
        tally = Tally()
        fold(tally, seen(rng.choice([1.0, 0.0, -1.0], size=1200, p=[0.2, 0.6, 0.2]).tolist()), 0.2, True)
        demoted += tally.verdict == "worse"
    assert demoted <= 12


def test_forecasts() -> None:
    assert forecast(Tally(), 0.05, 0.1) == (None, None)
    assert forecast(followed([0.0] * 500 + [1.0, -1.0]), 0.05, 0.1) == (None, None)
    even = followed([1.0, 0.0, 0.0, -1.0] * 50)
    found = forecast(even, 0.05, 0.2)
    known = 0.5 - (0.25 / 200) ** 0.5  # what can be counted on to decide, of 100 in 200
    planned = samples_needed(0.2 * known, known - (0.2 * known) ** 2)
    assert planned is not None
    assert found.needed == planned - 200
    assert found.likely is not None
    assert found.likely > 1000  # nothing speaks for either side
    assert forecast(followed([1.0] * 30), 0.05, 0.1) == (0, 0)
    assert forecast(followed([1.0, 0.0, 0.0, -1.0] * 5000), 0.05, 0.5).needed == 0


def test_the_current_rate() -> None:
    """Two lists a second for ten minutes, then none."""
    tally = Tally()
    fold(tally, [InterleavedOutcome(i, [0.0], [], 100.0 + i / 2) for i in range(1200)], 0.05, False)
    assert rate(tally, 100.0, 700.0) == pytest.approx(2.0, rel=0.01)
    assert rate(tally, 100.0, 2500.0) < 0.2
    early = Tally()
    fold(early, [InterleavedOutcome(i, [0.0], [], 100.0 + i / 2) for i in range(20)], 0.05, False)
    assert rate(early, 100.0, 110.0) == pytest.approx(2.0, rel=0.05)
    assert rate(Tally(), 0.0, 50.0) == 0.0
