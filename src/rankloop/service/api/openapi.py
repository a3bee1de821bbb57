"""The OpenAPI document: what the framework knows of the routes, put right where generated clients would stumble."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Litestar
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from rankloop import __version__
from rankloop.service.api.routes import ROUTES
from rankloop.wire.calls import Beacon, FeedbackEvent, RankColumns, RankRequest
from rankloop.wire.catalog import CatalogLine
from rankloop.wire.experiments import ExperimentRequest
from rankloop.wire.rankers import Spec, SpecChanges, VersionRequest

CONFIG = OpenAPIConfig(
    title="rankloop",
    version=__version__,
    summary="A ranking that learns from every click.",
    use_handler_docstrings=True,
    operation_id_creator=lambda handler, _method, _path: handler.handler_name,  # what generated clients call it
    components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
    security=[{"key": []}],
)
SENT = [Beacon, CatalogLine, ExperimentRequest, FeedbackEvent, RankColumns, RankRequest]
SENT += [Spec, SpecChanges, VersionRequest]
_HERE = "#/components/schemas/"

# Requests that work one after the other: they create the ranker and the catalog `example` and use them. The page of the
# API replaces IMPRESSION_ID and TOKEN by those of the last answer of `rank`, and EVENT_ID by a new one.
_CANDIDATES = [
    {"id": "red-shoe", "features": {"bm25": 7.2, "price": 20.0}},
    {"id": "blue-shoe", "features": {"bm25": 6.1, "price": 35.0}},
    {"id": "red-hat", "features": {"bm25": 2.5, "price": 15.0}},
]
_EVENT = {"event_id": "EVENT_ID", "clicks": ["red-shoe"], "final": True}
_LOGGED = {"query": "red shoes", "items": _CANDIDATES, "clicks": ["blue-shoe"]}
_EXAMPLES: dict[tuple[str, str], Any] = {
    ("put", "/v1/rankers/{name}"): {"features": ["bm25", "price"], "exposure": "full"},
    ("patch", "/v1/rankers/{name}"): {"exposure": "bounded", "displacement": 2},
    ("post", "/v1/rankers/{name}/rank"): {"query": "red shoes", "candidates": _CANDIDATES, "token": True},
    ("post", "/v1/feedback"): {**_EVENT, "impression_id": "IMPRESSION_ID"},
    ("post", "/v1/beacon"): {**_EVENT, "token": "TOKEN"},
    ("post", "/v1/rankers/{name}/warm"): msgspec.json.encode(_LOGGED).decode() + "\n",
    ("post", "/v1/rankers/{name}/experiments"): {"against": "base", "share": 0.2},
}
for _kind, _key, _fields in (("items", "red-shoe", {"price": 20.0, "brand": "acme"}), ("users", "ann", {"age": 34})):
    _rows = f"/v1/catalogs/{{catalog}}/{_kind}"
    _EXAMPLES |= {("put", _rows): [{"id": _key, **_fields}], ("patch", _rows): [{"id": _key, **_fields}]}
    _EXAMPLES["post", f"{_rows}/delete"] = [_key]
_PARAMETERS = {"name": "example", "catalog": "example", "user": "ann", "number": 1, "to": "json"}


def document() -> dict[str, Any]:
    """The document, with the bodies that some routes read by themselves.

    What can be sent is described by msgspec, which reads it: the framework leaves out that no other fields are allowed
    and the bounds of a number that may also be something else.
    """
    # An application for this alone: the one that is served would answer with a second document of its own.
    made: dict[str, Any] = Litestar(ROUTES, openapi_config=CONFIG, logging_config=None).openapi_schema.to_schema()
    _, components = msgspec.json.schema_components(SENT, ref_template=_HERE + "{name}")
    made["components"]["schemas"].update(components)
    for schema in made["components"]["schemas"].values():
        _without_object_defaults(schema)
    for item in made["paths"].values():
        for operation in item.values():
            _optional(operation.get("requestBody", {}))
    event, beacon = {"$ref": _HERE + "FeedbackEvent"}, {"$ref": _HERE + "Beacon"}
    bodies = {
        "/v1/feedback": {"anyOf": [event, {"type": "array", "items": event, "minItems": 1}]},
        "/v1/beacon": {"anyOf": [beacon, {"type": "array", "items": beacon, "minItems": 1}]},
        "/v1/rankers/{name}/rank": {"oneOf": [{"$ref": _HERE + "RankRequest"}, {"$ref": _HERE + "RankColumns"}]},
    }
    for path, schema in bodies.items():
        content = {"application/json": {"schema": schema}}
        made["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
    text = {"type": "string", "description": "a JSON object a line: query, items, features, clicks", "minLength": 1}
    warm = {"required": True, "content": {"application/x-ndjson": {"schema": text}}}
    made["paths"]["/v1/rankers/{name}/warm"]["post"]["requestBody"] = warm
    model = made["paths"]["/v1/rankers/{name}/export"]["get"]["responses"]["200"]["content"]
    model["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}  # of ONNX
    for kind in ("items", "users"):
        path = made["paths"][f"/v1/catalogs/{{catalog}}/{kind}"]
        path["put"]["requestBody"] = path["patch"]["requestBody"] = _lines({"$ref": _HERE + "CatalogLine"})
        key: dict[str, Any] = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]}
        made["paths"][f"/v1/catalogs/{{catalog}}/{kind}/delete"]["post"]["requestBody"] = _lines(key)
    for (method, path), example in _EXAMPLES.items():
        for content in made["paths"][path][method]["requestBody"]["content"].values():
            content["example"] = example
    for path, item in made["paths"].items():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                if parameter.get("required"):
                    known = {**_PARAMETERS, "key": "ann" if "/users/" in path else "red-shoe"}
                    parameter["example"] = known[parameter["name"]]
    return made


def _lines(one: dict[str, Any]) -> dict[str, Any]:
    """A body that is an array; that it may be a line each is said in words: generators of clients know no such type."""
    array = {"type": "array", "items": one, "minItems": 1, "description": "or the same as JSON lines, one a line"}
    return {"required": True, "content": {"application/json": {"schema": array}}}


def _without_object_defaults(schema: dict[str, Any]) -> None:
    """A default that is an object, where an object or null may stand, makes generators of clients drop the whole
    schema, and every route with it. So it is said in words."""
    for field in schema.get("properties", {}).values():
        if "anyOf" in field and isinstance(field.get("default"), dict):
            default = msgspec.json.encode(field.pop("default")).decode()
            field["description"] = f"{field.get('description', '')} (default `{default}`)".lstrip()


def _optional(body: dict[str, Any]) -> None:
    """A body that may be null need not be sent at all; the framework says that it must."""
    for content in body.get("content", {}).values():
        options = content["schema"].get("oneOf", [])
        if {"type": "null"} in options:
            (content["schema"],) = [option for option in options if option != {"type": "null"}]
            body["required"] = False
