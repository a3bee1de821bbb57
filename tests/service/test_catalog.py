"""Catalogs over HTTP: send items once, rank by ids; what is computed is what the same features in a body would be."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from rankloop.core import codec
from rankloop.service.storage import impressions as lists
from tests.service.app_fixtures import Service, fine, refused, shown, until
from tests.service.running import LOST, wait_for
from tests.service.running import Service as Running
from tests.service.truths import read

PRICE = {"name": "price", "kind": "field", "of": "item.price", "default": 0}
STARS = {"name": "stars", "kind": "field", "of": "item.stars", "default": -1}
PATH = "/v1/catalogs/shop/items"


@pytest.fixture
def service(store_url: str) -> Iterator[Service]:
    with Service(store_url) as made:  # type: ignore[arg-type]
        yield made.ready()


def upload(service: Service, items: list[dict[str, Any]], method: str = "PUT", kind: str = "items") -> dict[str, int]:
    answer = fine(service.http.request(method, f"/v1/catalogs/shop/{kind}", json=items))
    assert [one["line"] for one in answer["results"]] == list(range(1, len(items) + 1))
    counts: dict[str, int] = answer["counts"]
    return counts


def held(service: Service) -> None:
    """Wait until the process has taken in what is stored."""
    until(lambda: fine(service.http.get("/v1/catalogs/shop"))["items"]["behind"] == 0, "it to be held")


def by_ids(service: Service, name: str, ids: list[Any], **more: Any) -> Any:
    return fine(service.http.post(f"/v1/rankers/{name}/rank", json={"ids": ids, **more}))


def rows_of(service: Service, name: str) -> Any:
    """The features of the newest list, as they are stored."""
    (one,) = service.engine.database.read(lambda c: lists.latest_impressions(c, name, 1))
    service.engine.database.close_thread()
    return codec.load_impression(one.body).features


def test_lines_are_answered_one_by_one_in_both_forms(service: Service) -> None:
    assert upload(service, [{"id": "a", "price": 3}, {"id": 7, "price": 4}]) == {"accepted": 2}
    body = b'{"id": "b", "price": 1}\n\n{"id": "c", "price": "x"}\n{"price": 2}\nnot json\n[1]\n{"id": 7, "price": 4}\n'
    answer = fine(service.http.put(PATH, content=body))
    told = {one["line"]: (one["status"], one.get("id"), one.get("reason", "")) for one in answer["results"]}
    assert answer["counts"] == {"accepted": 1, "rejected": 4, "unchanged": 1}
    assert list(told) == [1, 3, 4, 5, 6, 7]
    assert told[1] == ("accepted", "b", "")
    assert told[3][:2] == ("rejected", "c")
    assert "field 'price' holds numbers, but here it is 'x'" in told[3][2]
    assert 'no "id"' in told[4][2]
    assert "not a JSON object" in told[5][2]
    assert "not a JSON object" in told[6][2]
    assert told[7] == ("unchanged", "7", "")
    assert fine(service.http.get(f"{PATH}/7")) == {"id": "7", "fields": {"price": 4}}
    assert upload(service, [{"id": "a", "stars": 5}], "PATCH") == {"accepted": 1}
    assert fine(service.http.get(f"{PATH}/a"))["fields"] == {"price": 3, "stars": 5}
    found = fine(service.http.get("/v1/catalogs/shop"))
    assert (found["items"]["count"], found["users"]["count"]) == (3, 0)
    assert found["items"]["fields"] == [
        {"name": "price", "kind": "number", "width": 0, "filled": 3},
        {"name": "stars", "kind": "number", "width": 0, "filled": 1},
    ]
    assert fine(service.http.get("/v1/catalogs")) == [found]


def test_invalid_catalog_lines_are_reported(service: Service) -> None:
    refused(service.http.put(PATH, content=b" \n "), 422)
    refused(service.http.put(PATH, content=b'[{"id": 1}'), 400)
    refused(service.http.put("/v1/catalogs/no*name/items", json=[{"id": 1}]), 400)
    refused(service.http.get("/v1/catalogs/nobody"), 404, "catalog", "'nobody'")
    upload(service, [{"id": "a", "x": 1}])
    refused(service.http.get(f"{PATH}/b"), 404, "catalog", "'shop'", "'b'")
    refused(service.http.delete(f"{PATH}/b"), 404, "'b'")
    answer = fine(service.http.put(PATH, json=[{"id": "b", "text": "x" * 70_000}, {"id": True}, {"id": ""}]))
    assert answer["counts"] == {"rejected": 3}
    assert "catalog_item_bytes is 65,536" in answer["results"][0]["reason"]


def test_deleting_one_many_and_all(service: Service) -> None:
    upload(service, [{"id": i, "x": i} for i in range(6)])
    assert service.http.delete(f"{PATH}/0").status_code == 204
    answer = fine(service.http.post(f"{PATH}/delete", json=[1, "2", "nobody", None]))
    assert [one["status"] for one in answer["results"]] == ["deleted", "deleted", "unknown", "rejected"]
    answer = fine(service.http.post(f"{PATH}/delete", content=b'3\n"3"\n'))
    assert [one["status"] for one in answer["results"]] == ["deleted", "deleted"]
    assert fine(service.http.get("/v1/catalogs/shop"))["items"]["count"] == 2
    assert fine(service.http.delete(PATH)) == {"deleted": 2}
    assert fine(service.http.get("/v1/catalogs/shop"))["items"]["fields"] == []
    assert service.http.delete("/v1/catalogs/shop").status_code == 204
    assert fine(service.http.get("/v1/catalogs")) == []


def test_a_repeated_deletion_gets_the_first_result(service: Service) -> None:
    upload(service, [{"id": i, "x": i} for i in range(3)])

    def delete(path: str) -> Any:
        return service.http.delete(path, headers={"Idempotency-Key": f"delete {path}"})

    for _ in range(2):
        assert delete(f"{PATH}/0").status_code == 204
        assert fine(delete(PATH)) == {"deleted": 2}
        assert delete("/v1/catalogs/shop").status_code == 204
    assert service.http.delete("/v1/catalogs/shop").status_code == 404


def test_catalog_features_equal_sent_features(service: Service) -> None:
    rng = np.random.default_rng(5)
    table = {f"i{i}": rng.normal(size=2).tolist() for i in range(40)}
    upload(service, [{"id": item, "price": row[0], "stars": row[1]} for item, row in table.items()])
    same = {"learner": "pairrank", "exposure": "full", "seed": 3, "k": 10}
    service.put("named", features=["price", "stars"], **same)
    service.put("declared", features=[PRICE, STARS], catalog="shop", **same)
    for t in range(12):
        ids = [f"i{i}" for i in rng.permutation(40)[:20]]
        query = f"q{t % 3}"
        sent = service.rank("named", [{"id": item, "features": table[item]} for item in ids], query=query)
        computed = by_ids(service, "declared", ids, query=query)
        assert shown(sent) == shown(computed)
        assert [one["score"] for one in sent["items"]] == [one["score"] for one in computed["items"]]
        assert np.array_equal(rows_of(service, "named"), rows_of(service, "declared"))
        for answer in (sent, computed):
            assert service.report(answer, [shown(sent)[t % 5]]) == "accepted"
        assert service.settle("named") == service.settle("declared")
    states = [codec.loads(service.state(name), name)[0] for name in ("named", "declared")]
    assert states[0].keys() == states[1].keys()
    assert all(np.array_equal(states[0][key], states[1][key]) for key in states[0])


def test_catalog_changes_do_not_change_stored_impressions(service: Service) -> None:
    upload(service, [{"id": "a", "price": 1}, {"id": "b", "price": 2}])
    service.put("shop", features=[PRICE], catalog="shop", normalization="none", learner="pairrank", exposure="shadow")
    by_ids(service, "shop", ["a", "b"])
    assert rows_of(service, "shop").tolist() == [[1.0], [2.0]]
    upload(service, [{"id": "a", "price": 9}])
    held(service)
    first = rows_of(service, "shop").tolist()
    by_ids(service, "shop", ["a", "b"])
    assert first == [[1.0], [2.0]]
    assert rows_of(service, "shop").tolist() == [[9.0], [2.0]]
    fine(service.http.post(f"{PATH}/delete", json=["a"]))
    held(service)
    by_ids(service, "shop", ["a", "b"])
    assert rows_of(service, "shop").tolist() == [[0.0], [2.0]]  # the declared default


def test_unknown_ids_and_missing_values_are_counted_or_refused(service: Service) -> None:
    upload(service, [{"id": "a", "price": 1, "stars": 2}, {"id": "b", "price": 2}])
    spec = {"features": [PRICE, STARS], "catalog": "shop", "normalization": "none", "learner": "pairrank"}
    service.put("shop", **spec)
    by_ids(service, "shop", ["a", "nobody", "b", "none"])
    assert rows_of(service, "shop").tolist() == [[1.0, 2.0], [0.0, -1.0], [2.0, -1.0], [0.0, -1.0]]
    assert service.metric("rankloop_catalog_unknown_total", ranker="shop") == 2
    assert service.metric("rankloop_catalog_missing_total", ranker="shop") == 1
    assert fine(service.http.get("/v1/catalogs/shop"))["unknown_ids"] == 2
    fine(service.http.patch("/v1/rankers/shop", json={"unknown": "refuse"}))
    answer = service.http.post("/v1/rankers/shop/rank", json={"ids": ["a", "nobody"]})
    refused(answer, 422, "'nobody'", "catalog", "'shop'", "unknown=refuse")
    by_ids(service, "shop", ["a", "b"])


def test_sent_and_computed_features_keep_the_order_of_the_spec(service: Service) -> None:
    upload(service, [{"id": "a", "price": 1, "stars": 2}, {"id": "b", "price": 3, "stars": 4}])
    spec = {"catalog": "shop", "normalization": "none", "learner": "pairrank", "defaults": {"y": 5}}
    service.put("both", features=["x", PRICE, "y", STARS], **spec)
    wanted = [[7.0, 1.0, 5.0, 2.0], [8.0, 3.0, 9.0, 4.0]]
    forms: list[dict[str, Any]] = [
        {"candidates": [{"id": "a", "features": {"x": 7}}, {"id": "b", "features": {"y": 9, "x": 8}}]},
        {"candidates": [{"id": "a", "features": [7, None]}, {"id": "b", "features": [8, 9]}]},
        {"ids": ["a", "b"], "features": [[7, None], [8, 9]]},
        {"ids": ["a", "b"], "features": {"x": [7, 8], "y": [None, 9]}},
    ]
    for form in forms:
        fine(service.http.post("/v1/rankers/both/rank", json={**form, "fields": {"device": "phone"}}))
        assert rows_of(service, "both").tolist() == wanted
    answer = service.http.post("/v1/rankers/both/rank", json={"ids": ["a", "b"]})
    refused(answer, 422, "features", "'x'", "'y'")
    explained = by_ids(service, "both", ["a", "b"], features=[[7, 5], [8, 9]])
    assert len(explained["items"]) == 2
    answer = fine(service.http.post("/v1/rankers/both/rank?explain=true", json=forms[2]))
    assert list(answer["items"][0]["features"]) == ["x", "price", "y", "stars", "baseline"]


def test_invalid_catalog_specs_are_refused(service: Service) -> None:
    put = service.http.put
    refused(put("/v1/rankers/r", json={"features": [PRICE]}), 422, "catalog")
    assert upload(service, []) == {}  # an empty catalog
    twice = [PRICE, "price"]
    refused(put("/v1/rankers/r", json={"features": twice, "catalog": "shop"}), 422, "'price'")
    wrong = [{**PRICE, "defualt": 1}]
    refused(put("/v1/rankers/r", json={"features": wrong, "catalog": "shop"}), 422, "'default'")
    given = {"features": [PRICE], "catalog": "shop", "defaults": {"price": 1}}
    refused(put("/v1/rankers/r", json=given), 422)
    status = service.put("r", features=[{"name": "p", "kind": "field", "of": "item.p"}], catalog="shop")
    assert status["spec"]["features"][0]["default"] == "mean"  # spelled out: a later release may have others


def test_a_rival_may_declare_other_features(service: Service) -> None:
    upload(service, [{"id": f"i{i}", "price": i, "stars": 10 - i} for i in range(8)])
    more = {"catalog": "shop", "learner": "pairrank", "exposure": "full", "k": 4}
    service.put("shop", features=["x", PRICE], **more)
    service.put("rival", features=[STARS, "x"], **more)
    service.put("stranger", features=["y"], learner="pairrank")
    refused(service.http.post("/v1/rankers/shop/experiments", json={"against": "stranger"}), 409, "'y'")
    fine(service.http.post("/v1/rankers/shop/experiments", json={"against": "rival", "share": 1.0}))
    for _ in range(5):
        by_ids(service, "shop", [f"i{i}" for i in range(8)], features=[[i] for i in range(8)])
    assert service.metric("rankloop_interleaved_rankings_total", ranker="shop") == 5
    assert service.metric("rankloop_not_interleaved_total", ranker="shop") == 0


def test_forgetting_a_user_forgets_the_entry_and_uploads_are_in_the_audit_list(service: Service) -> None:
    upload(service, [{"id": "u 1/x", "age": 30}, {"id": "v", "age": 3}], kind="users")
    assert fine(service.http.get("/v1/catalogs/shop/users/u%201%2Fx"))["fields"] == {"age": 30}
    assert fine(service.http.delete("/v1/users/u%201%2Fx"))["entries"] == 1
    refused(service.http.get("/v1/catalogs/shop/users/u%201%2Fx"), 404)
    assert fine(service.http.get("/v1/catalogs/shop"))["users"]["count"] == 1
    texts = [one["text"] for one in fine(service.http.get("/v1/audit"))]
    assert "catalog shop: 2 users put" in texts
    assert any("1 entries of catalogs" in text for text in texts)


@pytest.mark.slow
def test_two_processes_see_the_same_and_so_does_one_that_starts_later(
    store_url: str, start_service: Callable[..., Running]
) -> None:
    first, second = (start_service(store=store_url) for _ in range(2))
    spec = {"features": [PRICE], "catalog": "shop", "learner": "pairrank", "normalization": "none"}
    assert first.ask("PUT", PATH, []).status == 200
    first.put_ranker("shop", **spec)
    items = [{"id": f"i{i}", "price": i} for i in range(50)]
    assert msgspec.json.decode(first.ask("PUT", PATH, items).body)["counts"] == {"accepted": 50}

    def known(one: Running) -> bool:
        info = msgspec.json.decode(one.ask("GET", "/v1/catalogs/shop").body)
        return bool(info["items"]["held"] and info["items"]["behind"] == 0 and info["items"]["count"] == 50)

    for one in (first, second):
        wait_for(partial(known, one), "the items to be held")
    third = start_service(store=store_url)
    wait_for(lambda: known(third), "the items to be held")
    for one in (first, second, third):
        answer = one.ask("POST", "/v1/rankers/shop/rank", {"ids": ["i1", "i2"]})
        assert answer.status == 200, answer.body
        info = msgspec.json.decode(one.ask("GET", "/v1/catalogs/shop").body)
        assert info["unknown_ids"] == 0


def until_cut(service: Running, items: list[dict[str, Any]]) -> None:
    """Send items to a service that will not answer any more."""
    with contextlib.suppress(*LOST):
        service.ask("PUT", PATH, items)


@pytest.mark.slow
def test_killed_uploads_keep_acknowledged_items(store_url: str, start_service: Callable[..., Running]) -> None:
    service = start_service(store=store_url)
    acknowledged: dict[str, int] = {}
    cuts = [[{"id": f"cut-{turn}-{i}", "n": i} for i in range(5000)] for turn in range(3)]
    for turn in range(3):
        for call in range(4):
            items = [{"id": f"{turn}-{call}-{i}", "n": i} for i in range(300)]
            results = msgspec.json.decode(service.ask("PUT", PATH, items).body)["results"]
            acknowledged.update({one["id"]: i for i, one in enumerate(results) if one["status"] == "accepted"})
        cut = threading.Thread(target=until_cut, args=(service, cuts[turn]))
        cut.start()
        begun = f"SELECT 1 FROM catalog_rows WHERE substr(id, 1, 6) = 'cut-{turn}-' LIMIT 1"
        wait_for(partial(read, store_url, begun), "some of its rows", every=0.005)
        service.kill()
        cut.join()
        service.start()
    assert len(acknowledged) == 3600
    info = msgspec.json.decode(service.ask("GET", "/v1/catalogs/shop").body)
    assert info["items"]["count"] >= 3600
    for item, number in list(acknowledged.items())[::37]:
        assert json.loads(service.ask("GET", f"{PATH}/{item}").body)["fields"] == {"n": number}
    # What was cut short is sent again: the rest is put in, what had come is unchanged.
    again = msgspec.json.decode(service.ask("PUT", PATH, cuts[2]).body)
    assert sum(again["counts"].values()) == 5000
    assert set(again["counts"]) <= {"accepted", "unchanged"}


def test_retries_after_a_catalog_change_are_the_same_request(service: Service) -> None:
    """What makes a request the same is what it says, not what was looked up for it."""
    upload(service, [{"id": "a", "price": 1}, {"id": "b", "price": 2}])
    declared = [{"name": "price", "kind": "field", "of": "item.price"}]
    fine(service.http.put("/v1/rankers/again", json={"catalog": "shop", "features": declared}))
    asked = {"ids": ["a", "b"], "request_id": "once"}
    first = fine(service.http.post("/v1/rankers/again/rank", json=asked))
    upload(service, [{"id": "a", "price": 9}])
    held(service)
    assert fine(service.http.post("/v1/rankers/again/rank", json=asked)) == first
    refused(service.http.post("/v1/rankers/again/rank", json={**asked, "ids": ["b", "a"]}), 409)
    refused(service.http.post("/v1/rankers/again/rank", json={**asked, "fields": {"device": "x"}}), 409)
