"""Rewards in a unit: their scale, what is learned from them, versions, experiments, estimates and exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.cli import main
from rankloop.service.maintenance.archive import parquet
from rankloop.service.maintenance.archive.exporting import export_log
from rankloop.service.maintenance.archive.parquet import KEY
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.storage import events as stored_events
from rankloop.service.storage import joining, retention, snapshots
from rankloop.service.storage.rewards import LARGEST, PARTS, QUANTILE, RewardSketch
from tests.service.app_fixtures import Service, fine, items, names, refused, service, shown, until
from tests.service.experimenting import counted, refuse, start
from tests.service.stores import Store, ev, statuses, store

__all__ = ["service", "store"]  # fixtures

EUROS = {"name": "revenue", "unit": "EUR"}


# -- the sketch ----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=300))
def test_the_scale_is_the_quantile_up_to_the_width_of_a_bin(rewards: list[float]) -> None:
    sketch = RewardSketch()
    sketch.add([*rewards, 0.0])
    at = int(np.ceil(QUANTILE * len(rewards))) - 1
    true = sorted(rewards)[at]
    found = sketch.scale()
    assert found is not None
    assert true <= found <= true * (1 + 1 / PARTS)
    assert RewardSketch.loads(sketch.dumps()).counts == sketch.counts


def test_the_scale_follows_the_stream_and_takes_little_room() -> None:
    sketch = RewardSketch()
    rng = np.random.default_rng(0)
    sketch.add(np.exp(rng.normal(0.0, 30.0, 5000)).tolist())
    sketch.add([LARGEST, 5e-324])
    assert len(sketch.dumps()) < 50_000
    sketch.add([20.0] * 50_000)
    assert sketch.scale() == pytest.approx(20.0, rel=1 / PARTS)


# -- joining and closing -------------------------------------------------------------------------------------------


def test_values_follow_the_scale_of_the_stream_in_the_order_of_outcomes(store: Store) -> None:
    store.ranker("shop", reward={"unit": "EUR"}, click_reward=0.5)
    sketch = RewardSketch()
    expected = []
    for n, price in enumerate([100.0, 10.0, 400.0, 0.0]):
        name = store.show()
        assert statuses(store.send(ev(f"e{n}", name, rewards={"b": price}, final=True))) == ["accepted"]
        sketch.add([price])
        scale = sketch.scale()
        assert scale is not None
        expected.append(0.5 + 0.5 * min(price / scale, 1.0) if price else 0.0)
    clicked = store.show()
    store.send(ev("c", clicked, ["a"], final=True))
    assert [one.values for one in store.outcomes()[:4]] == [[0.0, value, 0.0] for value in expected]
    assert store.outcomes()[4].values == [0.5, 0.0, 0.0]
    rewards = [row[0] and json.loads(row[0]) for row in store.rows("SELECT rewards FROM outcomes ORDER BY seq")]
    assert rewards == [[0.0, price, 0.0] for price in (100.0, 10.0, 400.0, 0.0)] + [None]


def test_marks_are_kept_until_a_correction_and_go_with_the_impression(store: Store) -> None:
    store.ranker("shop")
    wrong, partly = store.show(window=5.0), store.show(window=5.0)
    first = store.send(ev("e1", wrong, ["z"], final=True), ev("e2", partly, ["a", "z"], final=True))
    assert [(one.status, one.kept) for one in first] == [("rejected", []), ("rejected", ["clicks"])]
    assert store.count("rejected_events") == 2
    store.now += 6.0
    assert sorted(one.kind for one in store.close_windows()) == ["attention", "window"]
    assert [one.values for one in store.outcomes()] == [[1.0, 0.0, 0.0]]
    assert store.rows("SELECT impression_id, event_id FROM rejected_events") == [(wrong, "e1")]
    late = store.send(ev("e2", partly, ["a"]), ev("e9", wrong, ["a"]))
    assert statuses(late) == ["late", "late"], "it was learned; and another event is no correction"
    assert statuses(store.send(ev("e1", wrong, ["y"]))) == ["rejected"]
    assert statuses(store.send(ev("e1", wrong, ["b"]), ev("e1", wrong, ["b"]))) == ["accepted", "duplicate"]
    assert store.outcomes()[1].values == [0.0, 1.0, 0.0]
    assert store.count("rejected_events") == 0
    counted = store.rows("SELECT status, count FROM event_counts WHERE ranker = 'shop' AND day = -1 ORDER BY status")
    assert counted == [("duplicate", 1), ("late", 2), ("rejected", 3)]


def test_marks_go_with_a_reset_and_with_their_impressions(store: Store) -> None:
    store.ranker("shop")
    before, erased = store.show(window=5.0), store.show(person="ann")
    store.send(ev("e1", before, ["z"]), ev("e2", erased, ["z"]))
    retention.erase_user(store.writer, "ann")
    assert store.rows("SELECT impression_id FROM rejected_events") == [(before,)]
    store.do(snapshots.replace_state, "shop", b"fresh", store.now, reset=True)
    assert store.count("rejected_events") == 0
    assert statuses(store.send(ev("e1", before, ["a"]), ev("e3", before, ["z"]))) == ["late", "rejected"]
    store.now += 6.0
    store.close_windows()
    assert [one.learn for one in store.outcomes()] == [False]
    kept, gone = store.show(), store.show()
    store.send(ev("e4", kept, ["z"]), ev("e5", gone, ["z"]))
    store.do(lambda c: c.run("DELETE FROM impressions WHERE id = ?", gone))
    store.do(joining.delete_old_rejected, store.now + 1.0)
    assert store.rows("SELECT impression_id FROM rejected_events") == [(kept,)]


def test_days_without_events_are_left_out_and_old_ones_go(store: Store) -> None:
    store.ranker("shop")
    store.now = 100.0 * 86400.0
    for day in range(12):
        if day != 10:
            store.send(ev(f"e{day}", store.show(), ["z"]), ev("lost", "nowhere", ["a"]))
        store.now += 86400.0
    store.now -= 86400.0
    found = store.see(stored_events.event_counts, store.now)
    assert (found["shop"].rejected, found[""].orphan, found["shop"].needs_attention) == (11, 11, 11)
    assert [one.start // 86400 - 100 for one in found["shop"].days] == [5, 6, 7, 8, 9, 11]
    assert all((one.rejected, one.orphan) == (1, 0) for one in found["shop"].days)
    assert found["shop"].last_rejected is not None
    assert found["shop"].last_rejected.event_id == "e11"
    assert store.count("event_counts") == 2 * (1 + 6)


def test_a_rejected_event_does_not_count_twice_in_a_sum(store: Store) -> None:
    store.ranker("shop", reward={"scale": 10.0}, click_reward=0.5, reward_aggregation="sum")
    name = store.show()
    store.send(ev("e1", name, rewards={"a": 2.0, "z": 1.0}), ev("e2", name, rewards={"a": 1.0}))
    assert statuses(store.send(ev("e1", name, rewards={"a": 2.0, "b": 1.0}))) == ["accepted"]
    store.send(ev("e3", name, final=True))
    assert store.rows("SELECT rewards FROM outcomes") == [(b"[3.0,1.0,0.0]",)]
    assert store.outcomes()[0].values == [pytest.approx(0.65), pytest.approx(0.55), 0.0]


# -- over HTTP -----------------------------------------------------------------------------------------------------


def test_a_reward_must_be_able_to_raise_the_value_of_a_click(service: Service) -> None:
    put = service.http.put
    odd = {"learner": "base", "reward": EUROS}
    refused(put("/v1/rankers/odd", json={**odd, "click_reward": 1.0}), 422, "click_reward")
    refused(put("/v1/rankers/odd", json={**odd, "interactions": {"buy": 1.0}}), 422, "interactions")
    assert put("/v1/rankers/odd", json={"reward": {"scale": 0}}).status_code == 400
    service.put("plain", learner="base", click_reward=1.0)
    spec = fine(service.http.patch("/v1/rankers/plain", json={"reward": EUROS}))["spec"]
    assert (spec["reward"]["scale"], spec["click_reward"]) == ("auto", 0.3)
    assert fine(service.http.patch("/v1/rankers/plain", json={"reward": None}))["spec"]["click_reward"] == 1.0


def test_the_scale_is_kept_in_versions(service: Service) -> None:
    service.put("cents", learner="hybrid", features=names(3), reward=EUROS)

    def buy(price: float) -> None:
        answer = service.rank("cents", items(4))
        assert service.report(answer, rewards={shown(answer)[1]: price}) == "accepted"

    for _ in range(3):
        buy(20.0)
    service.settle("cents")
    scale = service.status("cents")["reward_scale"]
    assert scale == pytest.approx(20.0, rel=0.05)
    fine(service.http.post("/v1/rankers/cents/versions", json={"note": "euros"}))
    for _ in range(3):
        buy(2000.0)  # by mistake in cents
    service.settle("cents")
    assert service.status("cents")["reward_scale"] > 1000.0
    service.act("cents", "rollback", version=1)
    assert service.status("cents")["reward_scale"] == scale
    service.act("cents", "reset")
    assert service.status("cents")["reward_scale"] is None


def test_what_a_watcher_sees_of_rewards_and_rejected_events(service: Service) -> None:
    service.put("watched", learner="base", reward=EUROS)
    answer = service.rank("watched", [{"id": "a"}, {"id": "b"}], user="watched-user")
    service.report(answer, ["a"], final=False, rewards={"a": 12.5})
    service.report(answer, ["y"], final=False, event_id="watched-bad")
    (found,) = fine(service.http.get("/v1/rankers/watched/impressions"))
    assert [item["reward"] for item in found["items"]] == [12.5, 0.0]
    assert [one["event_id"] for one in found["attention"]] == ["watched-bad"]
    exported = fine(service.http.get("/v1/users/watched-user"))["impressions"][0]
    assert exported["rewards"] == [12.5, 0.0]
    assert [one["status"] for one in exported["events"]] == ["accepted", "rejected"]


def test_events_of_unknown_impressions_are_counted_for_the_store(service: Service) -> None:
    before = fine(service.http.get("/v1/service"))["events"]
    event = {"event_id": "lost", "impression_id": "nowhere", "clicks": ["a"]}
    answer = fine(service.http.post("/v1/feedback", json=event))
    assert answer["counts"] == {"orphan": 1}
    refused(service.http.post("/v1/feedback", json={**event, "clicks": "a"}), 400, error="malformed")
    until(lambda: fine(service.http.get("/v1/service"))["events"]["rejected"] > before["rejected"], "a new answer")
    after = fine(service.http.get("/v1/service"))["events"]
    assert (after["orphan"], after["rejected"]) == (before["orphan"] + 1, before["rejected"] + 1)


def test_a_beacon_that_is_rejected_marks_its_impression(service: Service) -> None:
    service.put("page", learner="base")
    answer = service.rank("page", [{"id": "a"}, {"id": "b"}], token=True)
    event = {"token": answer["token"], "event_id": "c:z"}
    refused(service.http.post("/v1/beacon", json={**event, "clicks": ["z"]}), 422, error="rejected")
    refused(service.http.post("/v1/beacon", json={**event, "event_id": "r", "rewards": {"a": "x"}}), 400)
    (receipt,) = fine(service.http.post("/v1/beacon", json=[{**event, "clicks": ["y", "a"]}]))["results"]
    assert (receipt["status"], receipt["event_id"], receipt["kept"]) == ("rejected", "c:z", ["clicks"])
    events = service.status("page")["events"]
    assert (events["rejected"], events["needs_attention"]) == (3, 1)
    fixed = [{**event, "clicks": ["a"], "final": True}, {**event, "event_id": "r", "rewards": {"a": 1.0}}]
    assert fine(service.http.post("/v1/beacon", json=fixed))["counts"] == {"accepted": 2}
    assert service.settle("page") == 1


# -- experiments ---------------------------------------------------------------------------------------------------


def test_an_experiment_by_reward_counts_the_difference_of_rewards(service: Service) -> None:
    service.put("tried", learner="random", exposure="full", k=4)
    refuse(service, "tried", 422, "reward", metric="reward")
    fine(service.http.patch("/v1/rankers/tried", json={"reward": {**EUROS, "scale": "auto"}}))
    refuse(service, "tried", 409, "auto", metric="reward")
    fine(service.http.patch("/v1/rankers/tried", json={"reward": {**EUROS, "scale": 50.0}}))
    experiment = start(service, "tried", metric="reward", share=1.0)
    assert (experiment["metric"], experiment["reward_scale"]) == ("reward", 50.0)
    fine(service.http.patch("/v1/rankers/tried", json={"reward": {**EUROS, "scale": 10.0}}))
    expected = []
    for t in range(12):
        answer = service.rank("tried", [{"id": f"i{n}"} for n in range(8)])
        found = shown(answer)
        credit = _credit(service, answer["impression_id"])
        prices = {found[0]: 5.0 * t, found[2]: 20.0}
        service.report(answer, [found[3]], rewards=prices)
        rewards = [min(prices.get(item, 0.0) / 50.0, 1.0) for item in found]
        ahead = sum(side * reward for side, reward in zip(credit, rewards, strict=True))
        expected.append(min(max(ahead, -1.0), 1.0))
    assert sum(value != 0.0 for value in expected) > 5
    after = counted(service, "tried", experiment["number"], 12)
    assert after["preference"] == pytest.approx(np.mean(expected))
    assert (after["wins"], after["losses"]) == (sum(v > 0 for v in expected), sum(v < 0 for v in expected))


def _credit(service: Service, impression: str) -> list[float]:
    def read(connection: Any) -> Any:
        return connection.row("SELECT credit FROM impressions WHERE id = ?", impression)[0]

    return msgspec.json.decode(service.engine.database.read(read), type=list[float])


# -- estimates and exports -----------------------------------------------------------------------------------------


def test_estimates_by_reward_from_the_store_and_from_its_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = tmp_path / "estimates.db", tmp_path / "log"
    with Service(path) as one:
        one.put("shop", learner="pdgd", features=names(3), exposure="full", reward={**EUROS, "scale": 40.0})
        earned = 0.0
        for t in range(30):
            rules: dict[str, Any] = {"pinned": {"i2": 1}} if t % 5 == 0 else {}
            answer = one.rank("shop", items(6, seed=t), k=5, **rules)
            price = float(10 * (t % 6))
            item = next(item for item in shown(answer) if item != "i2")
            one.report(answer, [item], rewards={item: price} if price else None)
            earned += min(price, 40.0)
        assert one.settle("shop") == 30

    def estimated(*arguments: str) -> Any:
        words = ["replay", "shop", "--try", "base", "--gain", "reward", "--examination", "1/rank", "--json", *arguments]
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code in (0, None)
        return json.loads(capsys.readouterr().out)

    found = estimated("--store", str(path))
    assert (found["unit"], found["scale"]) == ("EUR", 40.0)
    logged = next(one for one in found["policies"] if one["policy"] == "as logged")
    assert logged["value"]["value"] == pytest.approx(earned / 30, rel=1e-5)
    assert logged["value"]["low"] < logged["value"]["value"] < logged["value"]["high"]
    with open_store(str(path)) as database:
        export_log(database, folder, ["shop"])
        assert rebuild(database, "shop").equal
    assert estimated("--log", str(folder)) == found
    assert rebuild(folder, "shop").equal
    # A file of the schema before has no rewards; its other columns are read.
    (file,) = parquet.files_of(folder, "shop")
    table = pq.read_table(file.path).drop_columns(["rewards"])
    pq.write_table(table.replace_schema_metadata({KEY: b"1"}), file.path)
    assert rebuild(folder, "shop").equal
    assert all(one["value"]["value"] == 0.0 for one in estimated("--log", str(folder))["policies"])
