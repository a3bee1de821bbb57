"""Declared features are checked against the fields that the catalog has: in answers, in the status and by doctor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.doctor import service as checks
from rankloop.service.maintenance.housekeeping import Retention
from rankloop.service.settings import Settings
from rankloop.service.storage import catalog
from rankloop.service.storage.catalog import Limits, NewRow
from tests.service.app_fixtures import Service, fine, refused
from tests.service.stores import Store, store

__all__ = ["store"]  # a fixture

PRICE = {"name": "price", "kind": "field", "of": "item.price"}
PRIZE = {"name": "price", "kind": "field", "of": "item.prize"}
AGE = {"name": "age", "kind": "field", "of": "user.age"}
ROOM = Limits(10_000, 2**30)


@pytest.fixture
def service(store_url: str) -> Iterator[Service]:
    with Service(store_url) as made:  # type: ignore[arg-type]
        yield made


def upload(service: Service, *items: dict[str, Any], kind: str = "items") -> Any:
    return fine(service.http.put(f"/v1/catalogs/shop/{kind}", json=list(items)))


def ask(service: Service, method: str = "PUT", name: str = "shop", **spec: Any) -> Any:
    return service.http.request(method, f"/v1/rankers/{name}", json=spec)


# -- specs ---------------------------------------------------------------------------------------------------------


def test_misspelled_catalog_field_is_refused_with_a_suggestion(service: Service) -> None:
    upload(service, {"id": "a", "price": 3, "brand": "acme"})
    refused(ask(service, catalog="shop", features=[PRIZE]), 422, "'price'", "item.prize")
    refused(service.http.get("/v1/rankers/shop"), 404)
    assert fine(ask(service, catalog="shop", features=[PRICE]))["warnings"] == []
    refused(ask(service, "PATCH", features=[PRIZE]), 422, "'price'", "item.prize")


def test_a_field_of_a_kind_that_the_feature_cannot_read_is_refused(service: Service) -> None:
    upload(service, {"id": "a", "price": 3, "brand": "acme", "tags": ["x"], "where": [0.5, 1.0], "new": True})
    for kind, field in [("field", "brand"), ("text", "price"), ("age", "tags"), ("clicked", "where")]:
        declared = {"name": "x", "kind": kind, "of": f"item.{field}"}
        refused(ask(service, catalog="shop", features=[declared]), 422, "'x'", f"item.{field}")
    fits = [
        {"name": "tags", "kind": "category", "of": "item.tags", "buckets": 4},
        {"name": "new", "kind": "field", "of": "item.new"},
        {"name": "is new", "kind": "clicked", "of": "item.new"},
        {"name": "near", "kind": "cosine", "of": "item.where", "to": "request.where"},
        {"name": "clicks", "kind": "count", "by": ["item.brand", "user"]},
        {"name": "words", "kind": "text", "of": "item.tags"},
    ]
    assert fine(ask(service, catalog="shop", features=fits))["warnings"] == []


def test_a_catalog_that_does_not_exist_is_refused(service: Service) -> None:
    refused(ask(service, catalog="shop", features=[PRICE]), 422, "'shop'", error="unknown-catalog")
    upload(service, {"id": "a", "price": 3})
    refused(ask(service, catalog="shpo", features=[PRICE]), 422, "'shpo'", "'shop'", error="unknown-catalog")


def test_an_empty_catalog_is_a_warning(service: Service) -> None:
    assert upload(service) == {"results": [], "counts": {}, "warnings": []}
    (warning,) = fine(ask(service, catalog="shop", features=[PRIZE, AGE | {"of": "item.age"}]))["warnings"]
    assert "'shop'" in warning
    assert service.status("shop")["warnings"] == [warning]
    upload(service, {"id": "a", "prize": 3, "age": 1})
    assert service.status("shop")["warnings"] == []
    upload(service, {"id": "u", "age": 3}, kind="users")
    refused(ask(service, "PATCH", features=[PRIZE, AGE | {"of": "user.ages"}]), 422, "user.ages")


def test_existing_problems_of_a_ranker_are_warnings(service: Service) -> None:
    """Otherwise a catalog that changes would keep a ranker from being changed."""
    upload(service)
    fine(ask(service, catalog="shop", features=[PRIZE]))
    upload(service, {"id": "a", "price": 3})
    (warning,) = fine(ask(service, "PATCH", k=7))["warnings"]
    assert "item.prize" in warning
    assert fine(ask(service, catalog="shop", features=[PRIZE], k=8))["warnings"] == [warning]
    assert service.http.delete("/v1/catalogs/shop?force=true").status_code == 204
    (warning,) = fine(ask(service, catalog="shop", features=[PRIZE], k=9))["warnings"]
    assert "'shop'" in warning
    assert fine(service.http.get("/v1/rankers"))[0]["warnings"] == [warning]


def test_a_field_that_few_items_have_is_a_warning(service: Service) -> None:
    rows = [{"id": i, "price": i, **({"stars": 1} if i < 3 else {})} for i in range(10)]
    upload(service, *rows)
    stars = {"name": "stars", "kind": "field", "of": "item.stars"}
    (warning,) = fine(ask(service, catalog="shop", features=[PRICE, stars]))["warnings"]
    assert "item.stars" in warning
    assert "3 of 10" in warning
    upload(service, *({**row, "stars": 2} for row in rows[:5]))
    assert service.status("shop")["warnings"] == []


# -- uploads and deletions -----------------------------------------------------------------------------------------


def test_an_upload_reports_a_new_field_that_looks_like_one_that_features_read(service: Service) -> None:
    upload(service)
    service.put_cold("shop", catalog="shop", features=[PRICE])
    answer = upload(service, {"id": "a", "prize": 3, "brand": "acme"})
    assert answer["counts"] == {"accepted": 1}
    (warning,) = answer["warnings"]
    assert "'prize'" in warning
    assert "'price'" in warning
    assert upload(service, {"id": "b", "prize": 3})["warnings"] == []  # it is not new any more
    assert upload(service, {"id": "b", "price": 3, "prices": 4})["warnings"] == []  # both are there


def test_a_catalog_in_use_is_not_deleted_unless_forced(service: Service) -> None:
    upload(service, {"id": "a", "price": 3})
    for name in ("one", "two"):
        fine(ask(service, name=name, catalog="shop", features=[PRICE]))
    refused(service.http.delete("/v1/catalogs/shop"), 409, "'one'", "'two'", error="in-use")
    assert fine(service.http.get("/v1/catalogs/shop"))["items"]["count"] == 1
    refused(service.http.delete("/v1/catalogs/nobody"), 404)
    assert service.http.delete("/v1/rankers/one").status_code == 204
    refused(service.http.delete("/v1/catalogs/shop"), 409, "'two'")
    assert service.http.delete("/v1/catalogs/shop?force=true").status_code == 204
    refused(service.http.get("/v1/catalogs/shop"), 404)


# -- doctor --------------------------------------------------------------------------------------------------------


def test_doctor_names_the_ranker_and_the_field(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Service(path) as service:
        upload(service)
        fine(ask(service, catalog="shop", features=[PRIZE]))
        upload(service, {"id": "a", "price": 3})
    (found,) = [one for one in checks.store(Settings(store=str(path))) if one.name == "catalogs"]
    assert (found.state, "shop" in found.text, "item.prize" in found.text) == ("warning", True, True)
    assert "'price'" in found.remedy


# -- how many rows have a field ------------------------------------------------------------------------------------


def put(store: Store, items: dict[str, dict[str, Any]], merge: bool = False) -> None:
    lines = [NewRow(item, values) for item, values in items.items()]
    store.do(catalog.write, "shop", "items", lines, merge, ROOM, store.now)


def counts(store: Store) -> dict[str, int] | None:
    found = store.see(catalog.part, "shop", "items")
    assert found is not None
    return found.counts


def test_counts_follow_every_change(store: Store) -> None:
    put(store, {"a": {"x": 1, "y": 1}, "b": {"x": 1}, "c": {"x": 1, "z": None}})
    assert counts(store) == {"x": 3, "y": 1}
    put(store, {"b": {"y": 2}, "a": {"x": None}}, merge=True)
    assert counts(store) == {"x": 2, "y": 2}
    put(store, {"b": {"z": 1}})
    assert counts(store) == {"x": 1, "y": 1, "z": 1}
    store.do(catalog.delete, "shop", "items", ["a", "nobody", "b"], store.now)
    assert counts(store) == {"x": 1, "y": 0, "z": 0}
    put(store, {"a": {"x": 1}, "d": {"y": 1}})
    assert counts(store) == {"x": 2, "y": 1, "z": 0}
    store.do(catalog.empty, "shop", "items", store.now)
    assert counts(store) == {}


def test_rows_of_an_earlier_release_are_counted_in_portions(store: Store) -> None:
    put(store, {f"i{i}": {"x": i, **({"y": 1} if i % 2 else {})} for i in range(20)})
    store.do(lambda connection: connection.run("UPDATE catalogs SET field_counts = NULL"))
    assert counts(store) is None
    store.do(catalog.recount, 8)
    assert counts(store) is None
    put(
        store, {"i0": {"x": 1, "y": 1}, "i19": {"x": 2}, "new": {"z": 1}}
    )  # one that is counted already, one that is not
    store.do(catalog.delete, "shop", "items", ["i1", "i18"], store.now)
    while store.do(catalog.recount, 8):
        pass
    assert counts(store) == {"x": 18, "y": 9, "z": 1}


def test_counts_start_again_after_an_earlier_release_has_written(store: Store) -> None:
    put(store, {"a": {"x": 1}, "b": {"x": 1}})
    body = json.dumps({"y": 1}).encode()

    def write(connection: Any) -> None:
        """As a release does that knows nothing of counts."""
        connection.run("UPDATE catalog_rows SET body = ?, seq = 3 WHERE id = 'a'", body)
        connection.run("UPDATE catalogs SET seq = 3, fields = ?", b'{"x":["number",0],"y":["number",0]}')

    store.do(write)
    assert counts(store) is None
    put(store, {"c": {"x": 1}})
    assert counts(store) is None
    while store.do(catalog.recount, 1):
        pass
    assert counts(store) == {"x": 2, "y": 1}


def test_a_running_service_counts_what_is_not_counted_yet(service: Service) -> None:
    upload(service, {"id": "a", "x": 1}, {"id": "b", "y": 1})
    service.engine.writer.do(lambda connection: connection.run("UPDATE catalogs SET field_counts = NULL"))
    assert [one["filled"] for one in fine(service.http.get("/v1/catalogs/shop"))["items"]["fields"]] == [None, None]
    Retention(service.engine).delete()
    assert [one["filled"] for one in fine(service.http.get("/v1/catalogs/shop"))["items"]["fields"]] == [1, 1]
