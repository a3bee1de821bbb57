"""Feedback over HTTP: receipts, joining, windows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.service.app_fixtures import Clock, Service, fine, items, model_of, names, refused, service, shown, until

__all__ = ["service"]  # a fixture


def test_every_event_of_a_batch_is_answered_for_itself(service: Service) -> None:
    service.put("mixed", learner="base", exposure="full")
    first, second, closed = (service.rank("mixed", [{"id": "a"}, {"id": "b"}]) for _ in range(3))
    assert service.report(closed, ["a"]) == "accepted"
    known, other = first["impression_id"], second["impression_id"]
    batch: list[Any] = [
        {"event_id": "mixed-1", "impression_id": known, "clicks": ["a"]},
        {"event_id": "mixed-1", "impression_id": known, "clicks": ["a"]},
        {"event_id": "mixed-1", "impression_id": other, "clicks": ["a"]},
        {"event_id": "mixed-2", "impression_id": known, "clicks": ["z", "y"]},
        {"event_id": "mixed-3", "impression_id": "nowhere", "clicks": []},
        {"event_id": "mixed-4", "impression_id": closed["impression_id"], "clicks": ["b"]},
        {"event_id": "mixed-5", "impression_id": known, "grades": {"a": 1.0}},
        {"event_id": "mixed-6", "impression_id": known, "clicks": ["a"], "grades": {"a": 1.0}},
        {"event_id": "mixed-7", "impression_id": known},
        {"event_id": "mixed-8", "impression_id": known, "clicks": ["a"], "when": 5},
        {"event_id": "", "impression_id": known, "clicks": ["a"]},
        {"event_id": "mixed\0", "impression_id": known, "clicks": ["a"]},
        17,
        {"event_id": "mixed-9", "impression_id": known, "final": True},
        {"event_id": "mixed-10", "impression_id": known, "clicks": ["b"]},
        {"event_id": "mixed-2", "impression_id": other, "clicks": ["b"], "final": True},  # refused before: free
    ]
    response = fine(service.http.post("/v1/feedback", json=batch))
    expected = [
        ("accepted", None),
        ("duplicate", None),
        ("rejected", known),
        ("rejected", "'z', 'y'"),
        ("orphan", "'nowhere'"),
        ("late", "closed"),
        ("rejected", "'mixed' learns from clicks"),
        ("rejected", "grades beside clicks"),
        ("rejected", "clicks"),
        ("rejected", "when"),
        ("rejected", "event_id"),
        ("rejected", "NUL"),
        ("rejected", "object"),
        ("accepted", None),  # but it waits for corrections of the events that were rejected
        ("accepted", None),
        ("accepted", None),
    ]
    assert len(response["results"]) == len(batch)
    for receipt, event, (status, word) in zip(response["results"], batch, expected, strict=True):
        assert receipt["status"] == status, (event, receipt)
        if word is None:
            assert "reason" not in receipt
        else:
            assert word in receipt["reason"]
        if isinstance(event, dict) and receipt["event_id"] is not None:
            assert receipt["event_id"] == event["event_id"]
    assert response["counts"] == Counter(status for status, _ in expected)
    assert service.settle("mixed") == 1
    assert service.status("mixed")["events"]["needs_attention"] == 2


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", ""),
        (b"[", ""),
        (b'[{"event_id": "a", "impression_id": "b"}', ""),
        (b"7", ""),
        (b"null", ""),
        (b'{"event_id": "a"}', "impression_id"),
        (b'{"event_id": 5, "impression_id": "b"}', "$.event_id"),
        (b'{"event_id": "a", "impression_id": "b", "clicks": "x"}', "$.clicks"),
        (b'{"event_id": "a", "impression_id": "b", "clicks": [null]}', "$.clicks[0]"),
        (b'{"event_id": "a", "impression_id": "b", "clicks": [%s]}' % (b"9" * 30), "$.clicks[0]"),
        (b'{"event_id": "a", "impression_id": "b", "grades": {"x": NaN}}', ""),
        (b'{"event_id": "a", "impression_id": "b", "grades": {"x": 1e999}}', ""),
        (b'{"event_id": "a", "impression_id": "b", "final": 1}', "$.final"),
        (b'{"event_id": "%s", "impression_id": "b"}' % (b"a" * 513), "$.event_id"),
        (b'{"event_id": "a", "impression_id": "%s"}' % (b"b" * 65), "$.impression_id"),
        (b'{"event_id": "a\\u0000", "impression_id": "b"}', "NUL"),
        (b'{"event_id": "\xff", "impression_id": "b"}', "UTF-8"),
        (b'[{"event_id": "\xff", "impression_id": "b"}, {"event_id": "c", "impression_id": "b"}]', "UTF-8"),
        (b"[" * 100_000 + b"]" * 100_000, ""),
    ],
)
def test_one_malformed_event_is_an_error(service: Service, body: bytes, word: str) -> None:
    refused(service.http.post("/v1/feedback", content=body), 400, word, error="malformed")


def test_an_empty_array_of_events_is_refused(service: Service) -> None:
    refused(service.http.post("/v1/feedback", json=[]), 422)


def test_clicks_that_come_one_by_one_are_joined(service: Service) -> None:
    service.put("joined", learner="greedy", features=names(3), exposure="full")
    service.put("at-a-time", learner="greedy", features=names(3), exposure="full")
    one, other = (service.rank(name, items(6)) for name in ("joined", "at-a-time"))
    assert shown(one) == shown(other)
    for click in ("i4", "i2", "i4"):
        assert service.report(one, [click], final=False) == "accepted"
    assert service.status("joined")["open_impressions"] == 1
    assert service.report(one, final=True) == "accepted"
    assert service.report(one, ["i1"]) == "late"
    assert service.report(other, ["i2", "i4"]) == "accepted"
    for name in ("joined", "at-a-time"):
        assert service.settle(name) == 1
        assert service.status(name)["open_impressions"] == 0
    arrays = [model_of(service.engine.rankers[name]).learner.state() for name in ("joined", "at-a-time")]
    assert all(np.array_equal(arrays[0][key], arrays[1][key]) for key in arrays[0])
    assert np.any(arrays[0]["theta_"] != 0)


def test_integer_ids_may_be_reported_as_numbers_or_text(service: Service) -> None:
    service.put("numeric", learner="base", exposure="full")
    answer = service.rank("numeric", [{"id": 10}, {"id": -3}])
    assert service.report(answer, [-3], final=False) == "accepted"
    assert service.report(answer, ["10"], final=False) == "accepted"
    assert service.report(answer, [3], final=False) == "rejected"


def outcome_kinds(service: Service, ranker: str) -> dict[str, int]:
    kinds = ("final", "window", "silent", "ignored")
    return {kind: int(service.metric("rankloop_outcomes_total", ranker=ranker, kind=kind)) for kind in kinds}


def test_a_window_closes_by_itself(service: Service) -> None:
    service.put("window", learner="base", exposure="full", window_seconds=0.2)
    service.rank("window", items(4, 1))
    until(lambda: service.settle("window") == 1, "the window to close")
    assert service.status("window")["open_impressions"] == 0


@pytest.mark.parametrize("silence", ["no-click", "ignore"])
def test_silence_means_what_the_ranker_says(silence: str, tmp_path: Path) -> None:
    """One list with a click, one without any event, one with an event that says: nothing was clicked."""
    clock, name = Clock(), "shop"
    with Service(tmp_path / "silence.db", clock) as service:
        service.ready()
        service.put(name, learner="greedy", features=names(3), exposure="full", window_seconds=600.0, silence=silence)
        clicked, quiet, told = (service.rank(name, items(4, seed=s)) for s in range(3))
        assert service.report(clicked, ["i2"], final=False) == "accepted"
        assert service.report(told, [], final=False) == "accepted"
        assert service.status(name)["open_impressions"] == 3
        clock.ahead = 601.0
        until(lambda: service.status(name)["open_impressions"] == 0, "the windows to close")
        assert service.settle(name) == (3 if silence == "no-click" else 2)
        closed = {"silent": 1, "ignored": 0} if silence == "no-click" else {"silent": 0, "ignored": 1}
        assert outcome_kinds(service, name) == {"final": 0, "window": 2, **closed}
        assert service.metric("rankloop_learned_total", ranker=name) == (3 if silence == "no-click" else 2)
        for answer in (clicked, quiet, told):
            assert service.report(answer, ["i1"]) == "late"
        assert service.settle(name) == (3 if silence == "no-click" else 2)
