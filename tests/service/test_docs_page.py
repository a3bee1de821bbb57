"""Everything the OpenAPI document says is on the page, nothing is loaded, and no name can break out of its place."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from html.parser import HTMLParser
from typing import Annotated, Any

import msgspec
import pytest
from litestar import Litestar, delete, get, post
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme, Tag
from litestar.params import FromPath, JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct

from rankloop.service.api.openapi import document as own_document
from rankloop.service.ui.api_docs import CONTENT_SECURITY_POLICY, page
from rankloop.wire.calls import FeedbackAnswer, FeedbackEvent, RankAnswer, RankRequest
from rankloop.wire.rankers import VersionInfo, VersionRequest
from tests.service.app_fixtures import Service, service, until

__all__ = ["service"]  # a fixture

VOID = {"meta", "link", "input", "br", "col"}
HOSTILE = "</script><script>alert('1')</script>\"><img src=x onerror=alert(1)>`&amp;"


class Tree(Struct):
    """A struct that contains itself."""

    label: str
    branches: list[Tree] = []
    parent: Tree | None = None


@post("/v1/rankers/{name:str}/rank", tags=["ranking"], summary="Rank", security=[{"key": []}], status_code=200)
async def rank(
    name: Annotated[str, PathParameter(description="which ranker")],
    data: JSONBody[RankRequest],
    explain: Annotated[bool, QueryParameter(description="add every feature's share")] = False,
    top: Annotated[int | None, QueryParameter(ge=1, le=20)] = None,
) -> RankAnswer:
    """Rank the candidates."""
    raise NotImplementedError


@post("/v1/feedback", tags=["feedback"], description="One event,\n\nor `many`.")
async def feedback(data: JSONBody[FeedbackEvent | list[FeedbackEvent]]) -> FeedbackAnswer:
    raise NotImplementedError


@post("/v1/rankers/{name:str}/promote", tags=["ranking"], deprecated=True)
async def promote(name: FromPath[str], data: JSONBody[VersionRequest]) -> list[VersionInfo]:
    raise NotImplementedError


@get("/v1/trees")
async def trees() -> Tree:
    raise NotImplementedError


@delete("/v1/rankers/{name:str}", tags=["ranking"])
async def remove(name: FromPath[str]) -> None:
    raise NotImplementedError


class Ruled(Struct):
    """A struct with a rule of every kind."""

    low: Annotated[int, Meta(ge=3)]
    above: Annotated[int, Meta(gt=3)]
    long: Annotated[str, Meta(min_length=6)]
    short: Annotated[str, Meta(max_length=2)]
    two: Annotated[list[float], Meta(min_length=2)]
    names: dict[str, int]
    flag: bool
    limited: Annotated[int, Meta(ge=2)] | None
    given: Annotated[list[str] | None, Meta(examples=[["a"]])] = None
    left_out: int | None = None


@post("/ruled")
async def ruled(data: JSONBody[Ruled]) -> None:
    raise NotImplementedError


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    scheme = SecurityScheme(type="apiKey", name="X-Api-Key", security_scheme_in="header")
    config = OpenAPIConfig(
        title="A <service>",
        version="1.2.3",
        description="What it does.",
        tags=[Tag(name="feedback", description="First on the page."), Tag(name="unused")],
        components=Components(security_schemes={"key": scheme}),
    )
    schema: dict[str, Any] = Litestar(
        [rank, feedback, promote, trees, remove], openapi_config=config
    ).openapi_schema.to_schema()
    return schema


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


def articles(html: str) -> dict[str, str]:
    """The HTML of every route, by its anchor."""
    return dict(re.findall(r'<article id="([^"]+)">(.*?)</article>', html, re.DOTALL))


def text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def example(article: str) -> Any:
    found = re.search(r"<h4>Example body</h4><pre[^>]*><code>(.*?)</code>", article, re.DOTALL)
    assert found
    return json.loads(unescape(found[1]))


def test_every_route_and_every_field_is_there(document: dict[str, Any]) -> None:
    html = page(document)
    found = Page(html)
    fields = set(re.findall(r'<th scope="row"><code>([^<]+)</code>', html))
    for path, item in document["paths"].items():
        assert f"<code>{path}</code>" in html
        for method, operation in item.items():
            assert f">{method.upper()}</span> <code>{path}</code></h3>" in html
            assert {parameter["name"] for parameter in operation.get("parameters", ())} <= fields
    for name, schema in document["components"]["schemas"].items():
        assert name in html
        for field, definition in schema["properties"].items():
            assert field in fields
            assert text(definition.get("description", "")).replace("`", "") in text(html)
    anchors = [attributes["id"] for attributes in found.all("article")]
    assert len(set(anchors)) == len(anchors) == 5
    links = [attributes["href"] for attributes in found.all("a")]
    assert {f"#{anchor}" for anchor in anchors} <= set(links)
    assert "/openapi.json" in links


def test_groups_follow_the_tags(document: dict[str, Any]) -> None:
    headings = re.findall(r"<section><h2>([^<]*)</h2>", page(document))
    assert headings == ["feedback", "ranking", "other"]
    assert "<p>First on the page.</p>" in page(document)
    assert "<p>One event,</p><p>or <code>many</code>.</p>" in page(document)


def test_rules_alternatives_and_defaults_are_said(document: dict[str, Any]) -> None:
    html = articles(page(document))
    said = text(html["post-v1-rankers-by-name-rank"])
    for words in (
        "list of Candidate",
        "map of (number or null) or list of (number or null) or null",
        "string or integer",
        "integer or null ≥ 1; ≤ 1000",
        "length ≤ 512",
        '"shadow" or "bounded" or "full"',
        'e.g. "red-shoe"',
        "path, required",
        "default false",
        "map of Contribution",
    ):
        assert words in re.sub(r"(?<=null)(?=≥)", " ", re.sub(r"\s+", " ", said)), words
    assert "FeedbackEvent or list of FeedbackEvent" in text(html["post-v1-feedback"])
    assert html["post-v1-feedback"].count("<code>event_id</code>") == 2  # in the body once, in the answer once
    assert 'integer or "live" or null' in text(html["post-v1-rankers-by-name-promote"])
    assert "deprecated" in text(html["post-v1-rankers-by-name-promote"])
    assert "No body." in html["delete-v1-rankers-by-name"]


def test_alternatives_with_different_fields_have_a_table_each() -> None:
    one, two = (
        {
            "type": "object",
            "title": name,
            "properties": {field: {"type": "array", "items": {"type": "string", "maxLength": 9}}},
        }
        for name, field in (("One", "first"), ("Two", "second"))
    )
    body: dict[str, Any] = {"content": {"application/json": {"schema": {"oneOf": [one, two, {"type": "null"}]}}}}
    html = articles(page({"paths": {"/": {"post": {"requestBody": body}}}}))["post"]
    said = text(html)
    assert "One or Two or null" in said
    assert said.index("If One") < said.index("first") < said.index("If Two") < said.index("second")
    assert "each length ≤ 9" in said
    id_schema = {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 0}], "default": None}
    body = {"content": {"application/json": {"schema": id_schema}}}
    assert "string: length ≤ 5; integer: ≥ 0<" in page({"paths": {"/": {"post": {"requestBody": body}}}})
    assert example(html) == {"first": ["text"]}


def test_a_schema_inside_itself_ends(document: dict[str, Any]) -> None:
    tree = articles(page(document))["get-v1-trees"]
    assert tree.count("<code>branches</code>") == 1
    assert "list of Tree" in text(tree)
    loop = {"$ref": "#/components/schemas/Loop"}
    schemas = {"Loop": {"oneOf": [loop, {"type": "null"}]}, "Pair": {"allOf": [loop, {"properties": {"x": loop}}]}}
    post = {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pair"}}}}}
    Page(page({"paths": {"/": {"post": post}}, "components": {"schemas": schemas}}))


def test_examples_are_accepted_by_the_service(document: dict[str, Any]) -> None:
    html = articles(page(document))
    kinds: dict[str, Any] = {
        "post-v1-rankers-by-name-rank": RankRequest,
        "post-v1-feedback": FeedbackEvent,
        "post-v1-rankers-by-name-promote": VersionRequest,
    }
    for anchor, kind in kinds.items():
        assert msgspec.convert(example(html[anchor]), kind)
    assert example(html["post-v1-rankers-by-name-rank"])["candidates"] == [
        {"id": "red-shoe", "features": {"bm25": 7.2, "price": 20.0}}
    ]


def test_examples_keep_the_rules() -> None:
    html = page(Litestar([ruled]).openapi_schema.to_schema())
    made = example(next(iter(articles(html).values())))
    assert msgspec.convert(made, Ruled)
    assert made["given"] == ["a"]
    assert "left_out" not in made


def test_curl_lines_can_be_pasted(document: dict[str, Any]) -> None:
    html = articles(page(document))
    curl = {name: text(re.findall(r"<h4>curl</h4><pre[^>]*>(.*?)</pre>", html[name], re.DOTALL)[0]) for name in html}
    words = shlex.split(curl["post-v1-rankers-by-name-rank"].replace("\\\n", ""))
    assert words[:4] == ["curl", "-X", "POST", "http://localhost:8000/v1/rankers/NAME/rank"]
    assert words[4:8] == ["-H", "X-Api-Key: $KEY", "-H", "Content-Type: application/json"]
    assert json.loads(words[9]) == example(html["post-v1-rankers-by-name-rank"])
    assert curl["get-v1-trees"] == "curl http://localhost:8000/v1/trees"


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


def test_without_a_script_nothing_dead_is_shown(document: dict[str, Any]) -> None:
    found = Page(page(document))
    assert all("hidden" in attributes for attributes in found.all("details") if attributes.get("class") == "try")
    assert len(found.all("form")) == len(found.all("button")) == 5
    assert {attributes["data-key"] for attributes in found.all("form")} == {"X-Api-Key: ", ""}
    assert len(found.all("textarea")) == 3


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
    for item in bad["paths"].values():
        for operation in item.values():
            operation["tags"] = [HOSTILE]
            operation["responses"] = {status + HOSTILE: answer for status, answer in operation["responses"].items()}
    two = [{"type": "object", "title": f"{name}{HOSTILE}", "minItems": 1, "properties": {name: {}}} for name in "ab"]
    bad["paths"]["/two"] = {
        "get": {
            "parameters": [{"name": "p", "in": HOSTILE, "schema": {}}],
            "responses": {"200": {"content": {"application/json": {"schema": {"anyOf": two}}}}},
        }
    }
    bad["servers"] = [{"url": f"/{HOSTILE}"}]
    bad["components"]["schemas"]["Receipt"]["properties"] = {
        HOSTILE: {"enum": [HOSTILE], "default": HOSTILE, "pattern": HOSTILE}
    }
    html = page(bad)
    found, clean = Page(html), Page(page(document))
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in clean.tags} | {"p", "code"}
    assert len(found.all("script")) == 1
    assert found.words["script"] == clean.words["script"]
    assert {name for _, attributes in found.tags for name in attributes} <= {
        name for _, attributes in clean.tags for name in attributes
    }
    assert "<img" not in html
    assert "alert(1)" in text(html)
    assert "javascript:" not in page({**bad, "servers": [{"url": "javascript:alert(1)"}]})


def test_a_server_below_a_path_is_honoured(document: dict[str, Any]) -> None:
    html = page({**document, "servers": [{"url": "/ranking/"}]})
    assert 'href="/ranking/openapi.json"' in html
    assert 'data-path="/ranking/v1/trees"' in html
    assert "http://localhost:8000</span>/ranking/v1/trees" in html


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
        tried.send(method, path)


def test_routes_are_collapsed() -> None:
    html = page(own_document())
    assert html.count('<details class="route">') == html.count("<article ") > 40
