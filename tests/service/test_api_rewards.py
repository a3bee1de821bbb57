"""Rewards and views over HTTP: joined, learned, replayed to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.service.app_fixtures import Clock, Service, fine, service, until

__all__ = ["service"]  # a fixture


def told(service: Service, name: str, answer: Any) -> Any:
    """What became of a list, as the page has it."""
    lists = fine(service.http.get(f"/v1/rankers/{name}/impressions"))
    return next(one for one in lists if one["impression_id"] == answer["impression_id"])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 1.0),
        ({"click_reward": 0.3}, 0.6),
        ({"click_reward": 0.3, "reward_aggregation": "sum"}, 0.9),
        ({"click_reward": 0.7, "reward_aggregation": "sum"}, 1.0),
        ({"click_reward": 0.3, "reward_aggregation": "earliest"}, 0.3),
    ],
)
def test_a_click_and_what_came_of_it(service: Service, spec: dict[str, Any], expected: float) -> None:
    name = f"worth-{abs(hash(str(spec)))}"
    service.put(name, learner="base", **spec)
    answer = service.rank(name, [{"id": "a"}, {"id": "b"}])
    assert service.report(answer, ["b"], final=False) == "accepted"
    assert service.report(answer, rewards={"b": 0.6}) == "accepted"
    assert service.report(answer, rewards={"b": 1.0}) == "late"
    assert [item["value"] for item in told(service, name, answer)["items"]] == [0.0, pytest.approx(expected)]


def test_what_breaks_a_rule_is_named(service: Service) -> None:
    service.put("odd", learner="base")
    answer = service.rank("odd", [{"id": "a"}, {"id": "b"}])
    event = {"impression_id": answer["impression_id"]}
    receipts = service.feedback(
        {**event, "event_id": "odd-1", "rewards": {"a": 1.5}},
        {**event, "event_id": "odd-2", "rewards": {"z": 1.0}},
        {**event, "event_id": "odd-3", "seen": 3},
        {**event, "event_id": "odd-4", "viewed": ["y"]},
        {**event, "event_id": "odd-5", "seen": 1, "grades": {"a": 1.0}},
    )
    assert [one["status"] for one in receipts] == ["rejected"] * 5
    words = ["from 0 to 1, not 'a': 1.5", "'z'", "seen is 3", "'y'", "grades beside clicks"]
    for receipt, word in zip(receipts, words, strict=True):
        assert word in receipt["reason"]


def test_only_what_was_seen_is_no_silence(tmp_path: Path) -> None:
    """Pages report views, silence is ignored: a list that was looked at is an outcome, one that was not is none."""
    clock = Clock()
    with Service(tmp_path / "views.db", clock) as service:
        service.ready().put("shop", learner="base", window_seconds=600.0, silence="ignore")
        service.put("keen", learner="base", window_seconds=600.0)
        candidates = [{"id": item} for item in "abc"]
        looked, unlooked, gone = (service.rank("shop", candidates) for _ in range(3))
        below = service.rank("keen", candidates)
        event = {"event_id": "v1", "impression_id": looked["impression_id"], "viewed": ["b"]}
        assert [one["status"] for one in service.feedback(event)] == ["accepted"]
        for n, answer in enumerate((gone, below)):
            service.feedback({"event_id": f"none{n}", "impression_id": answer["impression_id"], "seen": 0})
        clock.ahead = 601.0
        until(lambda: not service.status("shop")["open_impressions"], "the windows to close")
        until(lambda: not service.status("keen")["open_impressions"], "the windows to close")
        assert (service.settle("shop"), service.settle("keen")) == (1, 0)
        found = told(service, "shop", looked)
        assert (found["outcome"], found["seen"], [item["value"] for item in found["items"]]) == ("window", 2, [0.0] * 3)
        assert [told(service, "shop", one)["outcome"] for one in (unlooked, gone)] == ["ignored", "ignored"]
