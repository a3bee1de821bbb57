"""What an experiment may be against, and a rival that fails: it costs nobody a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.service import misbehaving
from tests.service.app_fixtures import Service, fine, items, model_of, names, service, shown, teach, until
from tests.service.experimenting import look, owners, refuse, reverse, sent, start, stop

__all__ = ["reverse", "service"]  # fixtures


def test_experiment_against_a_version_and_the_live_model(service: Service) -> None:
    name = "versions-tried"
    service.put(
        name, learner="pairrank", features=names(3), exposure="full", k=4, parameters={"alpha": 0.0}, guardrail=None
    )
    teach(service, name, 30)
    service.act(name, "promote")
    teach(service, name, 300, seed=5000)
    refuse(service, name, 409, "serves version 1", against=1)
    refuse(service, name, 404, "has no version 9", against=9)
    live = start(service, name, against="live", share=1.0)
    assert live["against"] == "live"
    learners = [service.engine.rankers[name].pinned, model_of(service.engine.rankers[name])]
    _check_sides(service, name, live["number"], *learners)
    stop(service, name, live["number"])
    service.act(name, "promote", version="live")
    refuse(service, name, 409, "serves what it learns", against="live")
    against = start(service, name, against=1, share=1.0)
    assert against["against"] == "v1"
    _check_sides(service, name, against["number"], learners[1], learners[0])


def _check_sides(service: Service, name: str, number: int, own: Any, rival: Any) -> None:
    """Credit +1 stands where `own` wanted the item, -1 where `rival` did."""
    sides = set()
    for seed in range(40):
        ask = items(6, 3, seed=70_000 + seed)
        answer = service.rank(name, ask)
        assert answer["experiment"] == number
        candidates = sent(service, name, ask)
        best = [candidates.items[model.learner.best(candidates, 4)].tolist() for model in (own, rival)]
        credit = owners(service, name)[answer["impression_id"]][1] or []
        above: list[str] = []
        for item, side in zip(shown(answer), credit, strict=True):
            for wanted in [best[0]] * (side >= 0) + [best[1]] * (side <= 0):
                assert item == next(one for one in wanted if one not in above)
            above.append(item)
            sides.add(side)
    assert sides == {1.0, -1.0, 0.0}


def test_against_another_ranker_with_fewer_features(service: Service) -> None:
    """It sees its own features, normalized its own way, whether they come by name or in a row."""
    service.put("wide", learner="pairrank", features=["a", "b", "c"], exposure="full", k=3, guardrail=None)
    service.put("narrow", learner="pairrank", features=["c", "a"], normalization="none", exposure="shadow", k=3)
    for t in range(60):  # it learns that c is liked
        ask = [{"id": f"i{i}", "features": [v, 0.5]} for i, v in enumerate(np.random.default_rng(t).permutation(4) / 4)]
        answer = service.rank("narrow", ask)
        liked = {one["id"]: one["features"][0] for one in ask}
        service.report(answer, [max(shown(answer), key=liked.__getitem__)])
    service.settle("narrow")
    number = start(service, "wide", against="narrow", share=1.0)["number"]
    for by_name in (True, False):
        rows = [[0.9, 0.1, 0.0], [0.1, 0.3, 0.2], [0.5, 0.5, 1.0], [0.2, 0.2, 0.7]]
        sent: list[Any] = [dict(zip("abc", row, strict=True)) if by_name else row for row in rows]
        wide = [{"id": f"i{i}", "features": features} for i, features in enumerate(sent)]
        for _ in range(10):
            answer = service.rank("wide", wide)
            assert answer["experiment"] == number
            credit = owners(service, "wide")[answer["impression_id"]][1] or []
            for place, (item, side) in enumerate(zip(shown(answer), credit, strict=True)):
                if side <= 0:  # by feature c
                    assert item == next(one for one in ("i2", "i3", "i1", "i0") if one not in shown(answer)[:place])


def test_impossible_rivals_are_refused(service: Service) -> None:
    service.put("refusing", learner="pairrank", features=["a"], exposure="full", guardrail=None)
    service.put("needs-more", learner="pairrank", features=["a", "b"])
    refuse(service, "refusing", 409, "'needs-more' needs feature 'b'", against="needs-more")
    refuse(service, "refusing", 409, "with itself", against="refusing")
    refuse(service, "refusing", 404, "'nobody'", "there are base, live", against="nobody")
    refuse(service, "nobody", 404, "'nobody'")
    refuse(service, "refusing", 409, "serves what it learns", against="live")
    assert fine(service.http.get("/v1/rankers/refusing/experiments")) == []


def test_deleted_or_changed_rivals_are_skipped(reverse: Service) -> None:
    reverse.put("left", learner="base", features=["a"], exposure="full", k=2, guardrail=None)
    reverse.put("gone", learner="base", features=["a"])
    number = start(reverse, "left", against="gone", share=1.0)["number"]
    ask = [{"id": c, "features": [0.5]} for c in "ab"]
    assert reverse.rank("left", ask)["experiment"] == number
    reverse.put("gone", learner="base", features=["z"])
    answer = reverse.rank("left", ask)
    assert (answer["experiment"], answer["fallback"], shown(answer)) == (None, False, ["a", "b"])
    assert reverse.metric("rankloop_not_interleaved_total", ranker="left", reason="features") == 1
    reverse.http.delete("/v1/rankers/gone")
    assert reverse.rank("left", ask)["experiment"] is None
    assert reverse.metric("rankloop_not_interleaved_total", ranker="left", reason="gone") == 1


@pytest.mark.parametrize("what", ["plain", "memory", "stop", "exit"])
def test_failing_rivals_do_not_affect_requests(reverse: Service, what: str) -> None:
    reverse.put(f"sound-{what}", learner="reverse", exposure="full", k=2, guardrail=None)
    reverse.put(f"fails-{what}", learner="raises", parameters={"where": "best", "what": what}, exposure="full")
    start(reverse, f"sound-{what}", against=f"fails-{what}", share=1.0)
    answer = reverse.rank(f"sound-{what}", [{"id": c} for c in "abc"])
    assert (answer["experiment"], answer["fallback"], shown(answer)) == (None, False, ["c", "b"])
    assert reverse.metric("rankloop_not_interleaved_total", ranker=f"sound-{what}", reason="error") == 1


def test_hanging_rivals_are_no_longer_called(reverse: Service) -> None:
    """It costs three requests their list, not the ranker its name, and the rival itself goes on ranking."""
    misbehaving.Hangs.free.clear()
    try:
        reverse.put("patient", learner="base", exposure="full", k=2, timeout_ms=1000.0)
        reverse.put("stuck", learner="hangs", parameters={"where": "best"}, exposure="shadow", k=2)
        number = start(reverse, "patient", against="stuck", share=1.0)["number"]
        ask = [{"id": c} for c in "abc"]
        for _ in range(3):
            answer = reverse.rank("patient", ask, query="hang")
            assert (answer["fallback"], answer["reason"], answer["experiment"]) == (True, "timeout", None)
        live = reverse.engine.rankers["patient"]
        assert (live.hanging, reverse.engine.rankers.experiments["patient"].running[0].hanging) == (0, 3)
        answer = reverse.rank("patient", ask, query="hang")
        assert (answer["fallback"], answer["experiment"], shown(answer)) == (False, None, ["a", "b"])
        assert reverse.metric("rankloop_not_interleaved_total", ranker="patient", reason="hanging") == 1
        assert not reverse.rank("stuck", ask)["fallback"]
    finally:
        misbehaving.Hangs.free.set()
    until(lambda: reverse.rank("patient", ask)["experiment"] == number, "the rival to come back")


def test_fallbacks_are_not_interleaved(reverse: Service) -> None:
    reverse.put("fails-itself", learner="raises", parameters={"where": "adopt"}, exposure="full", k=2, guardrail=None)
    number = start(reverse, "fails-itself", share=1.0)["number"]
    answer = reverse.rank("fails-itself", [{"id": c} for c in "abc"])
    assert (answer["experiment"], answer["fallback"], shown(answer)) == (None, True, ["a", "b"])
    reverse.report(answer, ["a"])
    reverse.settle("fails-itself")
    assert look(reverse, "fails-itself", number)["lists"] == 0
    assert owners(reverse, "fails-itself")[answer["impression_id"]] == (None, None)
