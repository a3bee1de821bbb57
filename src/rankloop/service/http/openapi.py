"""The OpenAPI document: what the framework knows of the routes, put right where generated clients would stumble."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Litestar
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from rankloop import __version__
from rankloop.service.http.routes import ROUTES
from rankloop.service.wire.calls import Beacon, FeedbackEvent, RankColumns, RankRequest
from rankloop.service.wire.catalogue import CatalogueLine
from rankloop.service.wire.experiments import ExperimentRequest
from rankloop.service.wire.rankers import Spec, SpecChanges, VersionRequest

CONFIG = OpenAPIConfig(
    title="rankloop",
    version=__version__,
    summary="A ranking that learns from every click.",
    use_handler_docstrings=True,
    operation_id_creator=lambda handler, _method, _path: handler.handler_name,  # what generated clients call it
    components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
    security=[{"key": []}],
)
SENT = [Beacon, CatalogueLine, ExperimentRequest, FeedbackEvent, RankColumns, RankRequest]
SENT += [Spec, SpecChanges, VersionRequest]
_HERE = "#/components/schemas/"


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
        path = made["paths"][f"/v1/catalogues/{{catalogue}}/{kind}"]
        path["put"]["requestBody"] = path["patch"]["requestBody"] = _lines({"$ref": _HERE + "CatalogueLine"})
        key: dict[str, Any] = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]}
        made["paths"][f"/v1/catalogues/{{catalogue}}/{kind}/delete"]["post"]["requestBody"] = _lines(key)
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
