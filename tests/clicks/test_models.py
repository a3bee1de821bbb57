"""What every click model can do: limits, pages, files, bad input."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.clicks import (
    MODELS,
    Cascade,
    DynamicBayesian,
    Page,
    Pairs,
    PositionBased,
    SessionLog,
    UserBrowsing,
    dumps,
    load,
    loads,
    save,
)
from rankloop.core import codec
from rankloop.core.errors import CodecError, InvalidInput
from rankloop.core.types import Feedback, Impression
from tests.clicks.truths import RANKS, pages, truth

LIST = ["d3", "d0", "d5", "d1", "d2"]


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_of_pages_sum_to_one_and_their_clicks_to_the_click_probabilities(name: str) -> None:
    model, total, clicked = truth(name), 0.0, np.zeros(RANKS)
    for clicks in itertools.product([0, 1], repeat=RANKS):
        given = model.conditional_probabilities("q1", LIST, clicks)
        page = float(np.prod(np.where(clicks, given, 1 - given)))
        total += page
        clicked += page * np.array(clicks)
    assert total == pytest.approx(1.0)
    assert model.click_probabilities("q1", LIST) == pytest.approx(clicked)
    assert model.expected_clicks("q1", LIST) == pytest.approx(clicked.sum())
    assert model.expected_clicks("q1", LIST, 2) == pytest.approx(clicked[:2].sum())


@pytest.mark.parametrize("name", MODELS)
def test_users_click_as_often_as_foreseen(name: str) -> None:
    model, rng, rounds = truth(name), np.random.default_rng(1), 4000
    clicks = np.mean([model.react("q1", LIST, rng).values for _ in range(rounds)], axis=0)
    wanted = model.click_probabilities("q1", LIST)
    assert (np.abs(clicks - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / rounds)).all()
    assert isinstance(model.react("q1", LIST, rng), Feedback)


@pytest.mark.parametrize("name", MODELS)
def test_log_likelihood_of_a_log_is_that_of_its_pages(name: str) -> None:
    model, rng = truth(name), np.random.default_rng(2)
    log = model.simulate(pages(50, rng, shortest=1), rng)
    queries, documents = log.pairs.names()
    total, bits = 0.0, []
    for i in range(len(log)):
        shown, clicks = log.shown[i, : log.lengths[i]], log.clicks[i, : log.lengths[i]]
        query, ids = str(queries[shown[0]]), documents[shown]
        given = model.conditional_probabilities(query, ids, clicks)
        total += np.log(np.where(clicks, given, 1 - given)).sum()
        before = model.click_probabilities(query, ids)
        bits.append(-np.log2(np.where(clicks, before, 1 - before)))
    found = model.score(log)
    assert found.log_likelihood == pytest.approx(total / len(log), abs=RANKS * 1.1e-6)  # what is sure costs the floor
    by_rank = [2 ** np.mean([page[r] for page in bits if len(page) > r]) for r in range(RANKS)]
    assert found.perplexity_by_rank == pytest.approx(by_rank)
    assert found.perplexity == pytest.approx(np.mean(by_rank))
    assert (found.pages, found.clicks, found.impossible, found.unseen) == (50, log.clicks.sum(), 0, 0.0)


def test_limits_in_which_models_are_one() -> None:
    """DBN with continuation 1 is SDBN; SDBN that always satisfies is the cascade; UBM with equal columns is PBM."""
    dbn, pbm = truth("dbn"), truth("pbm")
    a, pairs = dbn.attraction_[:-1], dbn.pairs  # type: ignore[attr-defined]
    s = dbn.satisfaction_[:-1]  # type: ignore[attr-defined]
    patient = DynamicBayesian().given(pairs, attraction_=a, satisfaction_=s, continuation_=[1.0])
    sdbn = MODELS["sdbn"]().given(pairs, attraction_=a, satisfaction_=s)
    happy = MODELS["sdbn"]().given(pairs, attraction_=a, satisfaction_=np.ones(len(a)))
    dcm = MODELS["dcm"]().given(pairs, attraction_=a, stop_=np.ones(RANKS))
    cm = Cascade().given(pairs, attraction_=a)
    e = pbm.examination_  # type: ignore[attr-defined]
    ubm = UserBrowsing().given(pairs, attraction_=a, examination_=np.repeat(e[:, None], RANKS, axis=1))
    pbm = PositionBased().given(pairs, attraction_=a, examination_=e)
    for left, right in ((patient, sdbn), (happy, cm), (dcm, cm), (ubm, pbm)):
        assert left.click_probabilities("q0", LIST) == pytest.approx(right.click_probabilities("q0", LIST))
        for clicks in itertools.product([0, 1], repeat=RANKS):
            if right is cm and sum(clicks) > 1:
                continue  # what a cascade cannot explain has no probabilities given
            assert left.conditional_probabilities("q0", LIST, clicks) == pytest.approx(
                right.conditional_probabilities("q0", LIST, clicks)
            )


def test_a_second_click_is_impossible_for_a_cascade_and_costs_what_the_floor_says() -> None:
    model = Cascade().given(Pairs.of(["q"] * 2, ["a", "b"]), attraction_=[0.5, 0.5])
    log = SessionLog.from_pages([Page("1", "q", ["a", "b"], [1, 1]), Page("2", "q", ["a", "b"], [1, 0])])
    found = model.score(log)
    assert found.impossible == 1
    assert found.log_likelihood == pytest.approx((2 * np.log(0.5) + np.log(1e-6) + np.log(1 - 1e-6)) / 2)


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_is_the_same_bit_for_bit(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    log = truth("ubm").simulate(pages(100, rng), rng)
    options: dict[str, Any] = {"prior": 2.5} if "prior" in MODELS[name]().options() else {}
    model = MODELS[name](**options).fit(log)
    save(model, tmp_path / "saved")
    found = load(tmp_path / "saved")
    assert type(found) is type(model)
    assert found.options() == model.options()
    assert {key: value.tobytes() for key, value in found.state().items()} == {
        key: value.tobytes() for key, value in model.state().items()
    }
    assert found.score(log).summary() == model.score(log).summary()


def test_files_that_are_no_models_are_named(tmp_path: Path) -> None:
    whole = dumps(truth("pbm"))
    with pytest.raises(CodecError, match="damaged or cut short"):
        loads(whole[:-30])
    with pytest.raises(CodecError, match="not a click model"):
        loads(codec.dumps({"theta_": np.zeros(2)}, {"learner": "pdgd"}))
    arrays, meta = codec.loads(whole)
    for change, words in (
        ({"attraction_": np.zeros(3)}, "attraction_ has shape"),
        ({"examination_": np.full(RANKS, 1.5)}, "holds 1.5"),
        ({"examination_": np.full(RANKS, np.nan)}, "holds nan"),
        ({"pairs/keys": arrays["pairs/keys"][::-1]}, "not in order"),
        ({"pairs/keys": arrays["pairs/keys"] + 1000}, "not in order"),
        ({"more_": np.zeros(1)}, "pbm learns"),
    ):
        with pytest.raises(CodecError, match=words):
            loads(codec.dumps({**arrays, **change}, meta))
    with pytest.raises(CodecError, match="no click model is called 'pmb'"):
        loads(codec.dumps(arrays, {**meta, "click model": "pmb"}))
    with pytest.raises(CodecError, match="not a complete click model"):
        loads(codec.dumps(arrays, {**meta, "options": {"color": 1}}))
    with pytest.raises(CodecError, match="No such file"):
        load(tmp_path / "nothing")


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pbm", "ubm", "dcm", "ctr-rank"])
def test_pages_longer_than_the_model_knows_are_named(name: str) -> None:
    model = truth(name)
    long = SessionLog.from_pages([Page("s", "q0", list("abcdefg"), [0] * 7)])
    for call in (lambda: model.score(long), lambda: model.react("q0", list("abcdefg"), np.random.default_rng(0))):
        with pytest.raises(InvalidInput, match=r"a page has 7 ranks, but this .* knows 5"):
            call()
    assert model.score(long.top(5)).pages == 1
    any_length = truth("cm")
    assert any_length.score(long).pages == 1


def test_a_log_of_impressions() -> None:
    """What learners showed becomes a log; slots that the feedback does not reach were not clicked."""
    shown = Impression("shoes", np.array([2, 0]), np.array([12, 10]), None, {})
    log = SessionLog.from_impressions([("ann", shown, Feedback.clicks([1])), ("bob", shown, Feedback.clicks([0, 1]))])
    assert log.clicks.tolist() == [[1, 0], [0, 1]]
    assert log.pairs.names()[1][log.shown[0]].tolist() == ["12", "10"]
    with pytest.raises(InvalidInput, match="learn from clicks only"):
        SessionLog.from_impressions([("ann", shown, Feedback.grades([1, 0]))])
