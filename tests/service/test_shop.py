"""A shop that reports purchases in euros and makes every mistake once: nothing is learned from a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rankloop.service.doctor import Finding
from rankloop.service.doctor import service as checks
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.settings import Settings
from tests.service.app_fixtures import Clock, Service, fine, items, names, refused, shown, until
from tests.service.truths import read

SHOP: dict[str, Any] = {
    "learner": "hybrid",
    "features": names(3),
    "exposure": "full",
    "window_seconds": 600.0,
    "reward_aggregation": "sum",
}
EUROS = {"name": "revenue", "unit": "EUR"}
VISITS = 40


class Visit:
    """A ranking that was shown in the shop, and what the visitor did."""

    def __init__(self, number: int, answer: dict[str, Any]) -> None:
        self.number, self.impression = number, answer["impression_id"]
        self.item, self.other = shown(answer)[number % 4 + 1], shown(answer)[0]
        self.price = 4.0 + 7.5 * (number % 9)

    def event(self, **more: Any) -> dict[str, Any]:
        """What the shop should report: a click, and for most visits a purchase."""
        right: dict[str, Any] = {"clicks": [self.item], "final": True}
        if self.number % 8 < 6:
            right["rewards"] = {self.item: self.price}
        return {"event_id": f"e{self.number}", "impression_id": self.impression, **right, **more}


def doctor(store: Path) -> list[Finding]:
    found = checks.store(Settings(store=str(store)))
    return [one for one in found if one.name == "feedback" and one.state == "warning"]


def visits(service: Service, name: str) -> list[Visit]:
    return [Visit(n, service.rank(name, items(8, seed=n), query=f"q{n % 5}")) for n in range(VISITS)]


@pytest.mark.parametrize("scale", ["auto", 30.0])
def test_a_shop_learns_from_corrected_events_what_it_learns_from_correct_ones(
    tmp_path: Path, scale: float | str
) -> None:
    clock, store = Clock(), tmp_path / "shop.db"
    with Service(store, clock) as service:
        reward = {**EUROS, "scale": scale}
        service.ready().put("messy", **SHOP, reward=reward)
        service.put("right", **{**SHOP, "window_seconds": 86400.0}, reward=reward)
        seen, twin = visits(service, "messy"), visits(service, "right")
        post = service.http.post
        wrong = 0
        for one in seen:
            kind = one.number % 8
            if kind in (0, 6):
                assert fine(post("/v1/feedback", json=one.event()))["counts"] == {"accepted": 1}
            elif kind == 1:  # a typo in an id beside one that is right
                bad = one.event(clicks=["i99", one.item])
                refused(post("/v1/feedback", json=bad), 422, "i99", "clicks", "rewards", error="rejected")
                wrong += 1
            elif kind == 2:  # nothing in it is right, and it is sent twice
                bad = one.event(clicks=["i99"], rewards={"i98": one.price})
                answer = fine(post("/v1/feedback", json=[bad, bad]))
                assert answer["counts"] == {"rejected": 2}
                assert [receipt.get("kept") for receipt in answer["results"]] == [None, None]
                wrong += 2
            elif kind == 3:  # a price as text
                bad = one.event(rewards={one.item: f"{one.price}"})
                refused(post("/v1/feedback", json=bad), 400, "rewards", error="malformed")
                wrong += 1
            elif kind == 4:  # a duplicate
                first, second = service.feedback(one.event(), one.event())
                assert (first["status"], second["status"]) == ("accepted", "duplicate")
            elif kind == 5:  # a purchase after the click, and a final event before the correction
                click = one.event(rewards=None, final=False)
                bad = one.event(event_id=f"b{one.number}", clicks=None, rewards={one.item: -1.0})
                end = one.event(event_id=f"f{one.number}", clicks=None, rewards=None)
                statuses = [receipt["status"] for receipt in service.feedback(click, bad, end)]
                assert statuses == ["accepted", "rejected", "accepted"]
                wrong += 1
        each = VISITS // 8
        status = service.status("messy")
        assert status["closed_impressions"] == 3 * each
        events = status["events"]
        assert (events["rejected"], events["duplicate"], events["needs_attention"]) == (wrong, each, 4 * each)
        assert events["last_rejected"]["event_id"] in ("e37", "b37", "e35")
        assert service.metric("rankloop_feedback_events_total", ranker="messy", status="rejected") == wrong
        until(
            lambda: service.metric("rankloop_attention_impressions", ranker="messy") == 4 * each, "the gauge of marks"
        )
        (finding,) = doctor(store)
        assert all(part in finding.text for part in ("messy", f"{wrong} events", f"{4 * each} impressions"))

        # Most are corrected in time; an event that is wrong as a whole is not learned as "no click", and waits.
        for one in seen:
            if one.number % 8 in (1, 3):
                assert fine(post("/v1/feedback", json=one.event()))["counts"] == {"accepted": 1}
            elif one.number % 8 == 5:
                good = one.event(event_id=f"b{one.number}", clicks=None, final=False)
                assert fine(post("/v1/feedback", json=good))["counts"] == {"accepted": 1}
        assert service.status("messy")["events"]["needs_attention"] == each
        clock.ahead = 601.0
        until(lambda: not service.status("messy")["open_impressions"], "the windows to close")
        assert service.settle("messy") == 7 * each  # kind 7: nobody did anything
        assert service.status("messy")["events"]["needs_attention"] == each
        for one in seen:
            if one.number % 8 == 2:
                assert fine(post("/v1/feedback", json=one.event()))["counts"] == {"accepted": 1}
            elif one.number % 8 == 7:
                assert fine(post("/v1/feedback", json=one.event()))["counts"] == {"late": 1}
        assert service.settle("messy") == VISITS

        order = [
            row[0]
            for row in read(str(store), "SELECT impression_id FROM outcomes WHERE ranker = ? ORDER BY seq", "messy")
        ]
        numbers = {one.impression: one.number for one in seen}
        for impression in order:
            one = twin[numbers[impression]]
            silent = {"clicks": None, "rewards": None} if one.number % 8 == 7 else {}
            assert fine(post("/v1/feedback", json=one.event(**silent)))["counts"] == {"accepted": 1}
        assert service.settle("right") == VISITS
        assert service.state("messy") == service.state("right")
        assert service.status("messy")["reward_scale"] == service.status("right")["reward_scale"]
        if scale == 30.0:
            assert service.status("messy")["reward_scale"] == 30.0
        status = service.status("messy")["events"]
        assert (status["rejected"], status["late"], status["needs_attention"]) == (wrong, each, 0)
        assert sum(day["rejected"] for day in status["days"]) == wrong
        assert service.status("right")["events"]["rejected"] == 0

    with Service(store) as service:  # counts are in the store
        assert service.status("messy")["events"]["rejected"] == wrong
    with open_store(str(store)) as database:
        assert rebuild(database, "messy").equal


def test_euros_without_a_declared_reward_are_refused_and_never_learned_as_no_click(tmp_path: Path) -> None:
    clock, store = Clock(), tmp_path / "shop.db"
    with Service(store, clock) as service:
        service.ready().put("shop", **SHOP)
        clicked = 0
        seen = visits(service, "shop")
        for one in seen:
            event = one.event(rewards={one.item: one.price}, clicks=[one.item] if one.number % 2 else None)
            refused(service.http.post("/v1/feedback", json=event), 422, one.item, error="rejected")
            clicked += one.number % 2
        clock.ahead = 601.0
        until(lambda: not service.status("shop")["open_impressions"], "the windows to close")
        assert service.settle("shop") == clicked
        feedback = [msgspec.json.decode(row[0]) for row in read(str(store), "SELECT feedback FROM outcomes")]
        assert [sorted(values)[-1] for values in feedback] == [1.0] * clicked
        events = service.status("shop")["events"]
        assert (events["rejected"], events["needs_attention"]) == (VISITS, VISITS - clicked)
        (finding,) = doctor(store)
        assert str(VISITS - clicked) in finding.text

        # The shop declares its reward and sends the same events again: those that wait are learned.
        fine(service.http.patch("/v1/rankers/shop", json={"reward": EUROS}))
        again = [one.event(rewards={one.item: one.price}, clicks=None) for one in seen]
        counts = fine(service.http.post("/v1/feedback", json=again))["counts"]
        assert counts == {"accepted": VISITS - clicked, "late": clicked}
        assert service.settle("shop") == VISITS
        assert service.status("shop")["events"]["needs_attention"] == 0
