"""A self-contained page of the HTTP API, made from its OpenAPI document.

Style and script are inside, so the page works without internet and under `CONTENT_SECURITY_POLICY`. Without JavaScript
everything can be read; the script adds "Try it".
"""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from html import escape
from importlib import resources
from string import Template
from typing import Any, Final
from urllib.parse import quote

Node = Mapping[str, Any]  # a part of the document

_FILES = resources.files("rankloop.service.ui")
_HTML, _STYLE, _SCRIPT = [_FILES.joinpath(f"api_docs.{kind}").read_text("utf-8") for kind in ("html", "css", "js")]
_HASHES = [b64encode(sha256(text.encode()).digest()).decode() for text in (_STYLE, _SCRIPT)]
# For the header of the page: even text that was not escaped could neither run nor load anything.
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASHES[0]}'; script-src 'sha256-{_HASHES[1]}'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ORIGIN: Final = "http://localhost:8000"  # in curl lines; the script replaces it by the page's own
_METHODS: Final = ("get", "put", "post", "patch", "delete")
_LIMITS: Final = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "length ≥ {}",
    "maxLength": "length ≤ {}",
    "minItems": "length ≥ {}",
    "maxItems": "length ≤ {}",
    "pattern": "matches <code>{}</code>",
}


def page(openapi: Node) -> str:
    """The HTML page of an OpenAPI document in which bodies and required parameters have examples."""
    info = openapi["info"]
    groups: dict[str, list[_Operation]] = {}
    for path, item in openapi["paths"].items():
        for method in [method for method in _METHODS if method in item]:
            tag = (item[method].get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append(_Operation(method, path, item[method]))
    links = sections = ""
    for tag, operations in groups.items():
        items = "".join(f'<li><a href="#{each.anchor}">{each.heading}</a></li>' for each in operations)
        links += f"<h2>{escape(tag)}</h2><ul>{items}</ul>"
        sections += f"<section><h2>{escape(tag)}</h2>{''.join(each.article() for each in operations)}</section>"
    schemas = openapi.get("components", {}).get("schemas", {})
    return Template(_HTML).substitute(
        title=escape(f"{info['title']} {info['version']}"),
        intro=_prose(info.get("summary")),
        links=links,
        sections=sections,
        schemas="".join(_schema_article(name, schemas[name]) for name in sorted(schemas)),
        style=_STYLE,
        script=_SCRIPT,
    )


class _Operation:
    """One method of one path."""

    def __init__(self, method: str, path: str, node: Node) -> None:
        self.method, self.path, self.node = method, path, node
        self.anchor = re.sub(r"\W+", "-", method + path.replace("{", "by-")).strip("-")
        self.heading = f'<span class="method {method}">{method.upper()}</span> <code>{escape(path)}</code>'
        self.parameters: list[Node] = list(node.get("parameters", ()))
        self.body: Node = node.get("requestBody", {})
        contents: list[tuple[str, Node]] = [*self.body.get("content", {}).items(), ("", {})]
        self.media_type, self.media = contents[0]
        self.keyless = node.get("security") == [{}]

    def article(self) -> str:
        """Its description, parameters, body, curl line, form and responses."""
        head = f'<h3>{self.heading}</h3> <span class="summary">{_line(self.node.get("summary"))}</span>'
        html = _prose(self.node.get("description"))
        if self.parameters:
            rows = [
                (p["name"], {"description": p.get("description"), **p.get("schema", {})}, p["in"], p.get("required"))
                for p in self.parameters
            ]
            html += f"<h4>Parameters</h4>{_table(rows)}"
        if self.body:
            html += f"<h4>Body</h4>{_content(self.body)}<h4>Example body</h4>"
            html += f'<pre tabindex="0"><code>{escape(self._example())}</code></pre>'
        html += f'<h4>curl</h4><pre tabindex="0"><code>{self._curl()}</code></pre>{self._form()}<h4>Answers</h4>'
        for status, response in sorted(self.node.get("responses", {}).items()):
            html += f"<p><code>{escape(status)}</code> {_line(response.get('description'))}</p>{_content(response)}"
        return f'<article id="{self.anchor}"><details class="route"><summary>{head}</summary>{html}</details></article>'

    def _example(self, indent: int | None = 2) -> str:
        value = self.media.get("example", {})
        text = isinstance(value, str) and self.media_type != "application/json"
        return value if text else json.dumps(value, indent=indent, ensure_ascii=False)

    def _curl(self) -> str:
        """The line for a shell, as HTML."""
        url, query, options = ORIGIN + self.path, [], []
        for parameter in self.parameters:
            name, value = parameter["name"], _value(parameter)
            if parameter["in"] == "path":
                url = url.replace(f"{{{name}}}", quote(value, safe=""))
            elif parameter.get("required"):
                query.append(f"{quote(name)}={quote(value)}")
        if not self.keyless:
            options.append('-H "Authorization: Bearer $KEY"')
        if self.body:
            options.append(f"-H {shlex.quote(f'Content-Type: {self.media_type}')}")
            options.append(f"-d {shlex.quote(self._example(None))}")
        method = "" if self.method == "get" else f"-X {self.method.upper()} "
        first = f"curl {method}{shlex.quote(url + '?' * bool(query) + '&'.join(query))}"
        return escape(" \\\n  ".join([first, *options])).replace(ORIGIN, f'<span class="origin">{ORIGIN}</span>')

    def _form(self) -> str:
        """ "Try it", hidden until the script shows it."""
        html = ""
        for p in self.parameters:
            name, required = escape(p["name"]), " required" * bool(p.get("required"))
            html += f'<label>{name} <input data-in="{escape(p["in"])}" name="{name}" autocomplete="off"{required} '
            html += f'{"value" if required else "placeholder"}="{escape(_value(p))}"></label>'
        if self.body:
            html += f'<label>Body <textarea data-type="{escape(self.media_type)}" rows="12" spellcheck="false">'
            html += f"{escape(self._example())}</textarea></label>"
        html += '<button>Send</button> <output></output><pre tabindex="0" hidden></pre>'
        data = f'data-path="{escape(self.path)}" data-key="{"" if self.keyless else "Authorization: Bearer "}"'
        form = f'<form data-method="{self.method.upper()}" {data}>{html}</form>'
        return f'<details class="try" hidden><summary>Try it</summary>{form}</details>'


def _value(parameter: Node) -> str:
    """An example of a parameter, or its default, as text."""
    schema = parameter.get("schema", {})
    value = parameter.get("example", schema.get("default"))
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _content(node: Node) -> str:
    """The types of a body, with the media type unless it is JSON."""
    html = ""
    for media_type, media in node.get("content", {}).items():
        kind = "" if media_type == "application/json" else f"<code>{escape(media_type)}</code> "
        schema = media.get("schema", {})
        html += f'<p>{kind}<span class="type">{_type(schema)}</span> {_meaning(schema)}</p>'
    return html


def _schema_article(name: str, schema: Node) -> str:
    required = schema.get("required", ())
    rows = [(field, node, "", field in required) for field, node in schema.get("properties", {}).items()]
    table = _table(rows) if rows else f'<p class="type">{_type(schema)}</p>'
    return f'<div id="schema-{escape(name)}"><h3>{escape(name)}</h3>{_prose(schema.get("description"))}{table}</div>'


def _table(rows: Iterable[tuple[str, Node, str, Any]]) -> str:
    """A table of (name, schema, place, whether it is required)."""
    html = ""
    for name, schema, place, required in rows:
        note = escape(", ".join(filter(None, (place, "required" * bool(required)))))
        html += f'<tr><th scope="row"><code>{escape(name)}</code> <span class="note">{note}</span></th>'
        html += f'<td class="type">{_type(schema)}</td><td>{_meaning(schema)}</td></tr>'
    head = '<thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col">Meaning</th></tr></thead>'
    return f"<table>{head}<tbody>{html}</tbody></table>"


def _type(schema: Any) -> str:
    """A type as HTML: "list of Candidate", "string or null"; schemas are links."""
    if not isinstance(schema, Mapping):
        return "anything"
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rsplit("/", 1)[-1])
        return f'<a href="#schema-{name}">{name}</a>'
    if values := [schema["const"]] if "const" in schema else schema.get("enum"):
        return " or ".join(escape(json.dumps(value, ensure_ascii=False)) for value in values)
    if options := [*schema.get("oneOf", ()), *schema.get("anyOf", ()), *schema.get("allOf", ())]:
        return " or ".join(dict.fromkeys(map(_type, options)))
    kinds = schema.get("type", "anything")
    words = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        inner = schema.get("items" if kind == "array" else "additionalProperties")
        name = {"array": "list", "object": "map" if inner else "object"}.get(kind, escape(str(kind)))
        words.append(f"{name} of {_type(inner)}" if inner and kind in ("array", "object") else name)
    return " or ".join(words)


def _meaning(schema: Any) -> str:
    """The description, the limits and the default of a schema, as HTML."""
    if not isinstance(schema, Mapping):
        return ""
    rules = []
    for part in (schema, *schema.get("oneOf", ()), *schema.get("anyOf", ())):
        rules += [rule.format(escape(f"{_number(part[key])}")) for key, rule in _LIMITS.items() if key in part]
    if schema.get("default") is not None:
        rules.append(f"default <code>{escape(json.dumps(schema['default']))}</code>")
    return f'{_line(schema.get("description"))} <span class="rules">{"; ".join(dict.fromkeys(rules))}</span>'


def _number(value: Any) -> Any:
    """1000.0, as Litestar writes limits, as 1000."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _line(text: str | None) -> str:
    """Text as HTML, with `code` between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text or ""))


def _prose(text: str | None) -> str:
    """Paragraphs, separated by empty lines."""
    return "".join(f"<p>{_line(part)}</p>" for part in re.split(r"\n\s*\n", text or "") if part.strip())
