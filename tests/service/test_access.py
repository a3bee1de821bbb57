"""A key limited to rankers and catalogs reaches nothing else, by whichever route it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rankloop.service.access import digest, new_token
from rankloop.service.api.app import create_app
from rankloop.service.api.routes.common import Access
from rankloop.service.settings import SCOPES, Settings
from rankloop.service.storage import keys as stored
from rankloop.service.storage.keys import StoredKey
from tests.service.app_fixtures import Service, fine, refused, until

OPS = "admn-0123456789abcdef"
FEATURES = [{"name": "price", "kind": "field", "of": "item.price"}]


class Route(NamedTuple):
    """A method of a path, and what it asks of a key; None: it is open to everyone."""

    method: str
    path: str
    access: Access | None

    @property
    def parameters(self) -> list[str]:
        return [part[1:-1].partition(":")[0] for part in self.path.split("/") if part.startswith("{")]


def routes() -> list[Route]:
    """Every route of the application with all its adapters."""
    found = []
    for route in create_app(Settings(store="nowhere.db")).routes:
        for handler in getattr(route, "route_handlers", ()):
            guards = [guard for guard in handler.resolve_guards() if isinstance(guard, Access)]
            assert len(guards) <= 1, handler
            methods = sorted(set(handler.http_methods) - {"OPTIONS"})
            found += [Route(str(method), route.path, guards[0] if guards else None) for method in methods]
    return sorted(found, key=lambda one: (one.path, one.method))


ROUTES = routes()
PUBLIC = {"/", "/docs", "/openapi.json", "/healthz", "/readyz", "/health", "/rankloop.js", "/v1/beacon"}


class Tenants:
    """Two teams, each with a ranker and a catalog, and a key for one of them with every scope."""

    def __init__(self, service: Service) -> None:
        self.service, self.ops = service, {"authorization": f"Bearer {OPS}"}
        for name in ("shop", "films", "personalizer"):
            item = {"id": "boot", "price": 80}
            fine(self.ask("PUT", f"/v1/catalogs/{name}/items", self.ops, json=[item]))
            spec = {"learner": "greedy", "features": FEATURES, "catalog": name, "interactions": {"click": 1.0}}
            fine(self.ask("PUT", f"/v1/rankers/{name}", self.ops, json={**spec, "guardrail": None}))
            until(lambda name=name: service.engine.rankers[name].compiled, f"the kernels of {name}")  # type: ignore[misc]
        self.shop = self.key("+".join(SCOPES), ["shop", "shop-test"], ["shop", "shop-new"])

    def key(self, scopes: str, rankers: list[str], catalogs: list[str] = []) -> dict[str, str]:  # noqa: B006
        token = new_token()
        made = StoredKey(digest(token), token, scopes, 1.0, frozenset(rankers), catalogs=frozenset(catalogs))
        assert self.service.engine.writer.do(lambda c: stored.add(c, made))
        self.service.engine.cycle()
        return {"authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, key: dict[str, str], **more: Any) -> Any:
        return self.service.http.request(method, path, headers=key, **more)

    def rank(self, ranker: str, **more: Any) -> str:
        body = {"ids": ["boot"], **more}
        found: str = fine(self.ask("POST", f"/v1/rankers/{ranker}/rank", self.ops, json=body))["impression_id"]
        return found

    def feedback(self, key: dict[str, str], **event: Any) -> Any:
        return fine(self.ask("POST", "/v1/feedback", key, json={"clicks": ["boot"], **event}))["results"][0]

    def price(self, catalog: str) -> float:
        found: float = fine(self.ask("GET", f"/v1/catalogs/{catalog}/items/boot", self.ops))["fields"]["price"]
        return found


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    folder = tmp_path_factory.mktemp("access")
    with Service(folder / "a.db", keys=f"{OPS}:{'+'.join(SCOPES)}", learn_in="thread") as service:
        yield Tenants(service.ready())


# -- routes that name neither a ranker nor a catalog, and do not ask for a key without limits -------------------------


def own_rankers(tenants: Tenants) -> None:
    found = fine(tenants.ask("GET", "/v1/rankers", tenants.shop))
    assert [one["name"] for one in found] == ["shop"]


def own_catalogs(tenants: Tenants) -> None:
    found = fine(tenants.ask("GET", "/v1/catalogs", tenants.shop))
    assert [(one["name"], one["rankers"]) for one in found] == [("shop", ["shop"])]


def own_key(tenants: Tenants) -> None:
    found = fine(tenants.ask("GET", "/v1/keys/self", tenants.shop))
    assert (found["rankers"], found["catalogs"]) == (["shop", "shop-test"], ["shop", "shop-new"])
    assert found["scopes"] == list(SCOPES)


def own_changes(tenants: Tenants) -> None:
    found = fine(tenants.ask("GET", "/v1/audit", tenants.shop))
    assert {one["ranker"] for one in found} == {"shop"}
    refused(tenants.ask("GET", "/v1/audit?ranker=films", tenants.shop), 403, error="not-allowed")


def own_feedback(tenants: Tenants) -> None:
    other = tenants.rank("films")
    assert tenants.feedback(tenants.shop, event_id="e1", impression_id=other)["status"] == "orphan"


def own_events_of_ubi(tenants: Tenants) -> None:
    other = tenants.rank("films", request_id="ubi-1")
    for name in (other, "ubi-1"):
        attributes = {"object": {"object_id": "boot"}}
        event = {"action_name": "click", "query_id": name, "event_attributes": attributes}
        found = fine(tenants.ask("POST", "/ubi/events", tenants.shop, json=event))
        assert [one["status"] for one in found["results"]] == ["orphan"]


def own_events_of_metarank(tenants: Tenants) -> None:
    tenants.rank("films", request_id="metarank-1")
    click = {"event": "interaction", "id": "c", "ranking": "metarank-1", "type": "click", "item": "boot"}
    item = {"event": "item", "id": "1", "item": "boot", "fields": [{"name": "price", "value": 81}]}
    found = fine(tenants.ask("POST", "/feedback", tenants.shop, json=[click, item]))
    assert (found["accepted"], found["updated"]) == (1, 1)  # the item, in the catalog of its own ranker only
    assert (tenants.price("shop"), tenants.price("films")) == (81, 80)


def own_ranker_of_personalizer(path: str) -> Callable[[Tenants], None]:
    def check(tenants: Tenants) -> None:
        url = path.replace("{event_id:str}", "e1")
        found = tenants.ask("POST", url, tenants.shop, json={"actions": [{"id": "a", "features": []}]})
        assert found.status_code == 403, found.text
        assert tenants.ask("POST", url, tenants.ops, json={}).status_code != 403

    return check


FILTERED: dict[tuple[str, str], Callable[[Tenants], None]] = {
    ("GET", "/v1/rankers"): own_rankers,
    ("GET", "/v1/catalogs"): own_catalogs,
    ("GET", "/v1/audit"): own_changes,
    ("GET", "/v1/keys/self"): own_key,
    ("POST", "/v1/feedback"): own_feedback,
    ("POST", "/ubi/events"): own_events_of_ubi,
    ("POST", "/feedback"): own_events_of_metarank,
}
FILTERED |= {
    (one.method, one.path): own_ranker_of_personalizer(one.path)
    for one in ROUTES
    if one.path.startswith("/personalizer/")
}


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_a_limited_key_reaches_nothing_of_others_by_any_route(tenants: Tenants, route: Route) -> None:
    """A new route fails here until it names a ranker or a catalog in its path, asks for a key without limits, or has
    a check of its own in FILTERED."""
    if route.access is None:
        assert route.path in PUBLIC, "a route without a guard: declare its scope with Access or route(…)"
        return
    url = route.path
    for one in route.parameters:
        value = {"name": "films", "catalog": "films", "number": "1"}.get(one, "boot")
        url = url.replace(next(part for part in url.split("/") if part.startswith(f"{{{one}:")), value)
    if {"name", "catalog"} & set(route.parameters) or route.access.everything:
        found = tenants.ask(route.method, url, tenants.shop, json={})
        assert found.status_code == 403, found.text
        told = found.json()
        assert "films" not in str(told) or "catalog" in route.parameters  # it names what was asked for, at most
        return
    FILTERED[route.method, route.path](tenants)


@pytest.mark.parametrize("route", [one for one in ROUTES if one.access], ids=lambda one: f"{one.method} {one.path}")
def test_no_route_opens_without_a_key(tenants: Tenants, route: Route) -> None:
    url = route.path
    for part in [part for part in url.split("/") if part.startswith("{")]:
        url = url.replace(part, "1")
    assert tenants.service.http.request(route.method, url, json={}).status_code == 401


# -- Metarank's events need what the service's own calls need -------------------------------------------------------


@pytest.mark.parametrize("kind", ["item", "user"])
def test_a_feedback_key_cannot_write_catalogs_through_metarank(tenants: Tenants, kind: str) -> None:
    web = tenants.key("rank+feedback", ["shop"], ["shop"])
    before = tenants.price("shop")
    event = {"event": kind, "id": "1", kind: "boot", "fields": [{"name": "price", "value": 0.01}]}
    refused(tenants.ask("POST", "/feedback", web, json=event), 403, "'admin'", error="not-allowed")
    admin = tenants.key("admin+feedback", ["shop"])  # without the catalog
    refused(tenants.ask("POST", "/feedback", admin, json=event), 403, "'shop'", error="not-allowed")
    assert tenants.price("shop") == before


def test_a_feedback_key_cannot_make_impressions_through_metarank(tenants: Tenants) -> None:
    web = tenants.key("feedback", ["shop"])
    event = {"event": "ranking", "id": "elsewhere-1", "fields": [], "items": [{"id": "boot"}], "timestamp": "1"}
    refused(tenants.ask("POST", "/feedback", web, json=event), 403, "'rank'", error="not-allowed")
    own = tenants.rank("shop", request_id="here-1")
    found = fine(tenants.ask("POST", "/feedback", web, json={**event, "id": "here-1"}))
    assert (found["status"], found["accepted"]) == ("ok", 1)
    assert own


# -- catalogs -------------------------------------------------------------------------------------------------------


def test_a_limited_key_cannot_point_its_ranker_at_another_catalog(tenants: Tenants) -> None:
    spec = {"learner": "greedy", "features": FEATURES, "guardrail": None}
    for name in ("shop", "shop-test"):  # changed, and made anew
        sent = {**spec, "catalog": "films"}
        refused(tenants.ask("PUT", f"/v1/rankers/{name}", tenants.shop, json=sent), 403, "'films'", error="not-allowed")
    refused(tenants.ask("PATCH", "/v1/rankers/shop", tenants.shop, json={"catalog": "films"}), 403, "'films'")
    assert fine(tenants.ask("GET", "/v1/rankers/shop", tenants.ops))["spec"]["catalog"] == "shop"
    found = tenants.ask("PATCH", "/v1/rankers/shop", tenants.shop, json={"catalog": "shop-new"})
    assert "films" not in refused(found, 422, error="unknown-catalog")  # it may not know the names of others
    fine(tenants.ask("PUT", "/v1/catalogs/shop-new/items", tenants.shop, json=[]))
    fine(tenants.ask("PATCH", "/v1/rankers/shop", tenants.shop, json={"catalog": "shop-new"}))
    fine(tenants.ask("PATCH", "/v1/rankers/shop", tenants.shop, json={"catalog": "shop"}))


def test_a_limited_key_without_catalogs_keeps_that_of_its_ranker(tenants: Tenants) -> None:
    """As keys of earlier releases: they name no catalog."""
    key = tenants.key("admin", ["films"])
    fine(tenants.ask("PATCH", "/v1/rankers/films", key, json={"k": 7}))
    refused(tenants.ask("GET", "/v1/catalogs/films", key), 403, error="not-allowed")
    fine(tenants.ask("PUT", "/v1/catalogs/stars/items", tenants.ops, json=[]))
    fine(tenants.ask("PATCH", "/v1/rankers/films", tenants.ops, json={"catalog": "stars"}))
    refused(tenants.ask("PATCH", "/v1/rankers/films", key, json={"catalog": "films"}), 403, "'films'")
    fine(tenants.ask("PATCH", "/v1/rankers/films", tenants.ops, json={"catalog": "films"}))


def test_a_limited_key_uses_its_catalogs_and_is_not_told_of_others(tenants: Tenants) -> None:
    fine(tenants.ask("PUT", "/v1/catalogs/shop-new/items", tenants.shop, json=[{"id": "hat", "price": 9}]))
    fine(tenants.ask("GET", "/v1/catalogs/shop-new/items/hat", tenants.shop))
    refused(tenants.ask("GET", "/v1/catalogs/shop-new/items/cap", tenants.shop), 404, "'cap'")
    assert tenants.ask("DELETE", "/v1/catalogs/shop-new", tenants.shop).status_code == 204
    told = refused(tenants.ask("GET", "/v1/catalogs/shop-new", tenants.shop), 404, error="unknown")
    assert "films" not in told
    assert "films" in refused(tenants.ask("GET", "/v1/catalogs/shop-new", tenants.ops), 404)


def test_catalogs_of_keys_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rankloop.cli import main

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["keys", *words, "--store", str(tmp_path / "s.db")])
        assert ended.value.code in (0, None), capsys.readouterr()
        return capsys.readouterr().out

    run("create", "films", "--rankers", "films", "--catalogs", "films, stars")
    run("create", "shop", "--rankers", "shop")
    run("create", "all")
    listed = {one["name"]: (one["rankers"], one["catalogs"]) for one in json.loads(run("list", "--json"))}
    assert listed == {"films": (["films"], ["films", "stars"]), "shop": (["shop"], []), "all": (None, None)}
    for words in (["--catalogs", "films"], ["--rankers", "films", "--catalogs", "a b"]):
        with pytest.raises(SystemExit) as ended:
            main(["keys", "create", "bad", *words, "--store", str(tmp_path / "s.db")])
        assert ended.value.code not in (0, None)


# -- event ids ------------------------------------------------------------------------------------------------------


def test_event_ids_of_one_ranker_say_nothing_of_another(tenants: Tenants) -> None:
    theirs, own = tenants.rank("films"), tenants.rank("shop")
    taken = tenants.feedback(tenants.ops, event_id="order-1001", impression_id=theirs)
    assert taken["status"] == "accepted"
    assert tenants.feedback(tenants.shop, event_id="order-1001", impression_id=own)["status"] == "accepted"
    assert tenants.feedback(tenants.shop, event_id="order-1001", impression_id=own)["status"] == "duplicate"


def test_an_impression_of_another_ranker_is_answered_as_one_that_does_not_exist(tenants: Tenants) -> None:
    theirs = tenants.rank("films")
    assert tenants.feedback(tenants.ops, event_id="order-1002", impression_id=theirs)["status"] == "accepted"
    nobody = "0" * 26
    for event_id in ("order-1002", "order-1003"):
        answers = [tenants.feedback(tenants.shop, event_id=event_id, impression_id=one) for one in (theirs, nobody)]
        assert [str(one).replace(theirs, "ID").replace(nobody, "ID") for one in answers] == [
            str({"event_id": event_id, "status": "orphan", "reason": answers[0]["reason"].replace(theirs, "ID")})
        ] * 2
    again = tenants.feedback(tenants.ops, event_id="order-1002", impression_id=theirs)
    assert again["status"] == "duplicate"
