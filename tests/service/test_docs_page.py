"""The page of the API: complete, self-contained, safe against hostile names; every example works."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from msgspec import Struct

from rankloop.service.api.openapi import document as own_document
from rankloop.service.ui.api_docs import CONTENT_SECURITY_POLICY, page
from tests.service.app_fixtures import Service, service, until

__all__ = ["service"]  # a fixture

VOID = {"meta", "link", "input", "br", "col"}
HOSTILE = "</script><script>alert('1')</script>\"><img src=x onerror=alert(1)>`&amp;"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return own_document()


class Page(HTMLParser):
    """The page as a tree of tags; an assertion fails where one is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, list[str]] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.words.setdefault(tag, []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_every_route_and_every_field_is_on_the_page(document: dict[str, Any]) -> None:
    html = page(document)
    words = unescape(re.sub(r"<[^>]+>", "", html))
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert f"{method.upper()} {path}" in words
            assert operation["summary"] in words
            assert all(parameter["name"] in words for parameter in operation.get("parameters", ()))
    anchors = set(re.findall(r'id="([^"]+)"', html))
    assert set(re.findall(r'href="#([^"]+)"', html)) <= anchors
    for name, schema in document["components"]["schemas"].items():
        assert f"schema-{name}" in anchors
        assert all(f"<code>{field}</code>" in html for field in schema.get("properties", {}))


def test_nothing_is_loaded(document: dict[str, Any]) -> None:
    html = page(document)
    found = Page(html)
    for tag, attributes in found.tags:
        assert tag not in {"img", "iframe", "object", "embed", "base", "source", "video", "audio"}
        for name, value in attributes.items():
            assert name not in {"src", "srcset", "style", "action", "data", "poster"}
            assert not name.startswith("on")
            if name == "href":
                assert value is not None
                assert value.startswith(("#", "/", "data:,"))
    style = "".join(found.words["style"])
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?://", "".join(found.words["script"]))
    assert "Storage" not in html  # the key stays in memory
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY


def poison(node: Any) -> Any:
    """`node` with hostile names, keys and texts wherever the page shows one."""
    if isinstance(node, dict):
        keep = {"$ref", "type", "in", "required", "enum"}
        result = {}
        for key, value in node.items():
            if key == "properties":
                result[key] = {field + HOSTILE: poison(schema) for field, schema in value.items()}
            elif key == "content":
                result[key] = {kind + HOSTILE: poison(media) for kind, media in value.items()}
            elif key == "name" or (key not in keep and isinstance(value, str)):
                result[key] = value + HOSTILE
            else:
                result[key] = value if key in keep else poison(value)
        return result
    return [poison(value) for value in node] if isinstance(node, list) else node


def test_hostile_names_are_only_text(document: dict[str, Any]) -> None:
    bad = poison(document)
    bad["paths"] = {path + HOSTILE: item for path, item in bad["paths"].items()}
    bad["components"]["schemas"] = {name + HOSTILE: one for name, one in bad["components"]["schemas"].items()}
    for item in bad["paths"].values():
        for operation in item.values():
            operation["tags"] = [HOSTILE]
            operation["responses"] = {status + HOSTILE: answer for status, answer in operation["responses"].items()}
    html = page(bad)
    found, clean = Page(html), Page(page(document))
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in clean.tags} | {"p", "code"}
    assert len(found.all("script")) == 1
    assert found.words["script"] == clean.words["script"]
    assert {name for _, attributes in found.tags for name in attributes} <= {
        name for _, attributes in clean.tags for name in attributes
    }
    assert "<img" not in html


class Form(Struct):
    """A "Try it" as it is filled in when the page opens."""

    method: str
    path: str
    body: str | None
    kind: str | None


def forms() -> list[Form]:
    """Those of the service's own page."""
    found = []
    for attributes, inside in re.findall(r"(?s)<form ([^>]*)>(.*?)</form>", page(own_document())):
        method, path = (unescape(re.findall(rf'data-{name}="([^"]*)"', attributes)[0]) for name in ("method", "path"))
        query = {}
        for field in re.findall(r"<input [^>]*>", inside):
            told = {name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', field)}
            if told["data-in"] == "path":
                path = path.replace(f"{{{told['name']}}}", told["value"])
            elif "value" in told:
                query[told["name"]] = told["value"]
        area = re.search(r'(?s)<textarea data-type="([^"]*)"[^>]*>(.*?)</textarea>', inside)
        path += "?" * bool(query) + "&".join(f"{name}={value}" for name, value in query.items())
        found.append(Form(method, path, unescape(area[2]) if area else None, area[1] if area else None))
    return found


CREATE = ("/v1/rankers/example", "/v1/catalogs/example/items", "/v1/catalogs/example/users")


class Tried:
    """Sends the examples as the script of the page does."""

    def __init__(self, service: Service) -> None:
        self.service, self.known, self.count = service, {"IMPRESSION_ID": "", "TOKEN": ""}, 0
        self.forms = {(one.method, one.path): one for one in forms()}

    def send(self, method: str, path: str) -> Any:
        form = self.forms[method, path]
        self.count += 1
        body = form.body
        for name, value in {**self.known, "EVENT_ID": f"e{self.count}"}.items():
            body = None if body is None else body.replace(name, value)
        answer = self.service.http.request(method, path, content=body, headers={"content-type": form.kind or ""})
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content and "json" in answer.headers["content-type"] else None

    def create(self) -> None:
        for path in CREATE:
            self.send("PUT", path)
        until(lambda: self.service.engine.rankers["example"].compiled, "the kernels")

    def rank(self) -> None:
        found = self.send("POST", "/v1/rankers/example/rank")
        self.known = {"IMPRESSION_ID": found["impression_id"], "TOKEN": found["token"]}


def test_every_example_works(service: Service) -> None:
    """Every "Try it" is answered without an error, as it is filled in on the page, once the example is created."""
    tried = Tried(service)
    assert len(tried.forms) > 40
    tried.create()
    tried.send("POST", "/v1/rankers/example/experiments")
    for path in ("/v1/feedback", "/v1/beacon"):
        tried.rank()
        assert [one["status"] for one in tried.send("POST", path)["results"]] == ["accepted"]
    tried.send("POST", "/v1/rankers/example/versions")
    done = {("POST", "/v1/rankers/example/experiments"), ("POST", "/v1/feedback"), ("POST", "/v1/beacon")}
    for method, path in sorted(tried.forms.keys() - done, reverse=True):  # what deletes comes last
        tried.create()
        if "/export" in path:  # after `reset`, `promote` and `pause` there must be something to export
            service.act("example", "promote", version="live")
            service.act("example", "resume")
            tried.rank()
            tried.send("POST", "/v1/feedback")
            service.settle("example")
            service.act("example", "versions")  # saves what was learned
        tried.send(method, path)
