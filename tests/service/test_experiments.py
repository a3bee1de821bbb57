"""Experiments over the API: who takes part, what is shown, what it comes to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.service.training.evidence import score
from tests.service.app_fixtures import Service, items, model_of, names, service, shown, teach, until
from tests.service.experimenting import counted, look, owners, reverse, sent, start, stop
from tests.service.truths import read

__all__ = ["reverse", "service"]  # fixtures


# -- what is shown -------------------------------------------------------------------------------------------------


def test_a_share_of_the_rankings_is_interleaved(reverse: Service) -> None:
    reverse.put("shared", learner="reverse", exposure="full", k=4, guardrail=None)
    started = start(reverse, "shared", share=0.3)
    assert (started["number"], started["kind"], started["against"], started["state"]) == (
        1,
        "experiment",
        "base",
        "running",
    )
    assert (started["lists"], started["preference"], started["interval"]) == (0, None, [-1.0, 1.0])
    answers = [reverse.rank("shared", [{"id": c} for c in "abcdef"]) for _ in range(300)]
    mixed = [answer for answer in answers if answer["experiment"] == 1]
    assert 60 < len(mixed) < 120
    assert {tuple(shown(answer)) for answer in answers if answer["experiment"] is None} == {tuple("fedc")}
    # Both have their heads in each round of two; who begins is a coin's.
    assert {tuple(shown(answer)) for answer in mixed} == {
        (*first, *second) for first in ("af", "fa") for second in ("be", "eb")
    }
    stored = owners(reverse, "shared")
    for answer in answers:
        number, credit = stored[answer["impression_id"]]
        assert number == answer["experiment"]
        expected = None if number is None else [1.0 if item in "fe" else -1.0 for item in shown(answer)]
        assert credit == expected
    assert reverse.metric("rankloop_interleaved_rankings_total", ranker="shared", kind="experiment") == len(mixed)


def test_other_rankings_are_unchanged_by_an_experiment(tmp_path: Path) -> None:
    lists: list[list[list[str]]] = []
    for experiment in (True, False):
        with Service(tmp_path / f"{experiment}.db") as one:
            one.ready()
            one.put("same", learner="pairrank", features=names(3), exposure="full", k=4, guardrail=None)
            one.act("same", "pause")
            if experiment:
                start(one, "same", share=0.4)
            answers = [one.rank("same", items(6, 3, seed=s)) for s in range(80)]
            lists.append([[] if answer["experiment"] else shown(answer) for answer in answers])
    different = [mixed for mixed, plain in zip(*lists, strict=True) if mixed != plain]
    assert different == [[]] * len(different)
    assert 15 < len(different) < 50


def test_interleaved_rankings_stay_within_the_bound(service: Service) -> None:
    name, displacement = "bounded-mixed", 2
    service.put(name, learner="random", exposure="bounded", displacement=displacement, k=6, guardrail=None)
    service.put("bounded-rival", learner="random", exposure="full", k=6, seed=9, guardrail=None)
    ask = [{"id": i} for i in range(10)]
    for against in ("base", "bounded-rival"):
        number = start(service, name, share=1.0, against=against)["number"]
        for _ in range(150):
            answer = service.rank(name, ask)
            assert answer["experiment"] == number
            assert all(abs(place - item) <= displacement for place, item in enumerate(shown(answer))), shown(answer)
            assert set(range(6 - displacement)) <= set(shown(answer))
        stop(service, name, number)


def test_the_learner_adopts_interleaved_rankings(service: Service) -> None:
    """So that it learns from it as from a list of someone else: with what it believes now, not with how it draws."""
    own = {"init": "zero"}  # so that it soon wants other lists than the base order
    service.put("adopting", learner="pairrank", parameters=own, features=names(3), exposure="full", k=4, guardrail=None)
    teach(service, "adopting", 40)
    start(service, "adopting", share=1.0)
    learner = model_of(service.engine.rankers["adopting"]).learner
    disagreed = 0
    for seed in range(15):
        ask = items(6, 3, seed=900 + seed)
        answer = service.rank("adopting", ask)
        sql = "SELECT body, credit FROM impressions WHERE id = ?"
        ((body, credit),) = read(service.engine.settings.store, sql, answer["impression_id"])
        stored = codec.load_impression(body)
        if not any(json.loads(credit)):
            continue
        disagreed += 1
        candidates = sent(service, "adopting", ask)
        adopted = learner.adopt(candidates, stored.order)
        assert stored.memo.keys() == adopted.memo.keys()
        for key, value in adopted.memo.items():
            assert stored.memo[key].tobytes() == value.tobytes()
    assert disagreed


def test_probabilistic_interleaving_credits_by_probability(reverse: Service) -> None:
    reverse.put("odds", learner="reverse", exposure="full", k=3, guardrail=None)
    number = start(reverse, "odds", share=1.0, mixing="probabilistic")["number"]
    answers = [reverse.rank("odds", [{"id": c} for c in "abcde"]) for _ in range(60)]
    assert len({tuple(shown(answer)) for answer in answers}) > 8
    stored = owners(reverse, "odds")
    for answer in answers:
        credit = stored[answer["impression_id"]][1]
        assert credit is not None
        assert all(-1.0 < side < 1.0 for side in credit)
        top = shown(answer)[0]
        # The ranker has e, d, c, then a, b as they came: e is 1st here and 5th there, so 1 : 1/125; a is 4th and 1st.
        expected = {"e": (1 - 1 / 125) / (1 + 1 / 125), "a": (1 / 64 - 1) / (1 / 64 + 1), "c": 0.0}
        if top in expected:
            assert credit[0] == pytest.approx(expected[top])
    assert look(reverse, "odds", number)["mixing"] == "probabilistic"


# -- what it comes to ----------------------------------------------------------------------------------------------


def test_clicks_decide_an_experiment(reverse: Service) -> None:
    """Users who click what the base order has first: the ranker that turns it round is worse."""
    reverse.put("clicked", learner="reverse", exposure="full", k=2, guardrail=None)
    number = start(reverse, "clicked", share=1.0, effect=0.5, note="upside down")["number"]
    values = []
    for i in range(60):
        answer = reverse.rank("clicked", [{"id": c} for c in "abcd"])
        clicks = ["a"] if i % 3 == 0 else ["d"] if i % 20 == 1 else []
        assert reverse.report(answer, clicks) == "accepted"
        values.append(-1.0 if clicks == ["a"] else 1.0 if clicks else 0.0)
    found = counted(reverse, "clicked", number, 60)
    assert (found["lists"], found["wins"], found["losses"]) == (60, values.count(1.0), values.count(-1.0))
    assert found["decided"] == found["wins"] + found["losses"]
    assert found["preference"] == pytest.approx(np.mean(values))
    assert found["verdict"] == "worse"
    assert found["interval"][0] <= found["preference"] <= found["interval"][1] < 0.0
    assert found["evidence"]["lists"] <= 60
    assert found["evidence"]["interval"][1] < 0.0
    assert (found["lists_needed"], found["seconds_needed"], found["note"]) == (0, 0.0, "upside down")
    assert found["level"] == pytest.approx(0.95)
    assert found["lists_per_second"] > 0.0
    assert reverse.status("clicked")["spec"]["exposure"] == "full"  # an experiment only looks
    until(lambda: reverse.metric("rankloop_experiment_lists_total", ranker="clicked") == 60, "the metrics")
    for result, wanted in {"win": 1.0, "loss": -1.0, "tie": 0.0}.items():
        lists = reverse.metric("rankloop_experiment_lists_total", ranker="clicked", result=result)
        assert lists == values.count(wanted)
    assert reverse.metric("rankloop_experiment_preference", ranker="clicked", end="mean") == found["preference"]


def test_the_tally_is_the_fold_over_the_log(reverse: Service) -> None:
    """Feedback out of order, in parts, late, paused, and without an end: each outcome counts once."""
    reverse.put("folded", learner="reverse", exposure="full", k=3, window_seconds=0.4, guardrail=None)
    number = start(reverse, "folded", share=0.6)["number"]
    answers = [reverse.rank("folded", [{"id": c} for c in "abcde"]) for _ in range(40)]
    reverse.act("folded", "pause")
    for i, answer in enumerate(reversed(answers)):
        if i == 15:
            reverse.act("folded", "resume")
        if i % 4 == 0:
            continue  # the window will end it
        reverse.report(answer, [shown(answer)[i % 3]], final=i % 2 == 0)
        reverse.report(answer, [shown(answer)[0]], final=True)
    until(lambda: reverse.status("folded")["open_impressions"] == 0, "the windows to close")
    mixed = sum(answer["experiment"] == number for answer in answers)
    found = counted(reverse, "folded", number, mixed)
    rows = read(
        reverse.engine.settings.store,
        "SELECT i.credit, o.feedback FROM outcomes o JOIN impressions i ON i.id = o.impression_id "
        "WHERE o.ranker = 'folded' AND i.experiment = ? ORDER BY o.seq",
        number,
    )
    values = [score(json.loads(credit), json.loads(feedback)) for credit, feedback in rows]
    assert len(values) == mixed == found["lists"]
    assert found["preference"] == pytest.approx(np.mean(values))
    assert (found["wins"], found["losses"]) == (sum(v > 0 for v in values), sum(v < 0 for v in values))


def test_outcomes_after_the_end_do_not_count(reverse: Service) -> None:
    reverse.put("ended", learner="reverse", exposure="full", k=2, guardrail=None)
    number = start(reverse, "ended", share=1.0)["number"]
    answers = [reverse.rank("ended", [{"id": c} for c in "abcd"]) for _ in range(6)]
    for answer in answers[:4]:
        reverse.report(answer, ["a"])
    counted(reverse, "ended", number, 4)
    stop(reverse, "ended", number)
    for answer in answers[4:]:
        assert reverse.report(answer, ["a"]) == "accepted"  # learned all the same
    second = start(reverse, "ended", share=1.0)["number"]
    answer = reverse.rank("ended", [{"id": c} for c in "abcd"])
    reverse.report(answer, ["a"])
    assert counted(reverse, "ended", second, 1)["lists"] == 1
    assert look(reverse, "ended", number)["lists"] == 4
