"""A browsable page of the HTTP interface, made from its OpenAPI document.

One self-contained file: style and script are inside, nothing is loaded from anywhere, so it works on a machine without
internet and under `CONTENT_SECURITY_POLICY`. Without JavaScript all of it can be read; the script adds "Try it".
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

Node = Mapping[str, Any]  # a piece of the document
Seen = tuple[str, ...]  # the references that led to where we are; one of them again is a recursion

_FILES = resources.files("rankloop.service.ui")
_HTML, _STYLE, _SCRIPT = [_FILES.joinpath(f"api_docs.{kind}").read_text("utf-8") for kind in ("html", "css", "js")]
_HASHES = [b64encode(sha256(text.encode()).digest()).decode() for text in (_STYLE, _SCRIPT)]
# For the header of the page: even text that got past the escaping could neither run nor load anything.
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASHES[0]}'; script-src 'sha256-{_HASHES[1]}'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ORIGIN: Final = "http://localhost:8000"  # in curl lines, until the script puts the page's own there
_METHODS: Final = ("get", "put", "post", "patch", "delete", "head", "options")
_DEPTH: Final = 12  # references inside references; deeper ones are named but not opened
_NOTHING: Final = object()  # the example of a schema that has none
_LIMITS: Final = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "a multiple of {}",
    "minLength": "length ≥ {}",
    "maxLength": "length ≤ {}",
    "minItems": "length ≥ {}",
    "maxItems": "length ≤ {}",
    "pattern": "matches <code>{}</code>",
}


def page(openapi: Mapping[str, Any]) -> str:
    """The HTML page of an OpenAPI 3.1 document, as `app.openapi_schema.to_schema()` gives it."""
    info = openapi.get("info", {})
    title = escape(f"{info.get('title', 'API')} {info.get('version', '')}".strip())
    about = {tag["name"]: tag.get("description") for tag in openapi.get("tags") or ()}
    base, intro = escape(_base(openapi)), _prose(info.get("summary")) + _prose(info.get("description"))
    links = sections = ""
    for tag, operations in _groups(openapi, about).items():
        items = "".join(f'<li><a href="#{each.anchor}">{each.heading}</a></li>' for each in operations)
        links += f"<h2>{escape(tag)}</h2><ul>{items}</ul>"
        articles = "".join(operation.article() for operation in operations)
        sections += f"<section><h2>{escape(tag)}</h2>{_prose(about.get(tag))}{articles}</section>"
    return Template(_HTML).substitute(
        title=title, intro=intro, base=base, links=links, sections=sections, style=_STYLE, script=_SCRIPT
    )


class _Operation:
    """One method of one path."""

    def __init__(self, openapi: Node, method: str, path: str, node: Node) -> None:
        self.openapi, self.method, self.path, self.node = openapi, method, path, node
        self.schemas = _Schemas(openapi)
        self.anchor = re.sub(r"\W+", "-", method + path.replace("{", "by-")).strip("-")
        self.heading = f'<span class="method {method}">{method.upper()}</span> <code>{escape(path)}</code>'
        self.parameters = [self.schemas.at(parameter)[0] for parameter in node.get("parameters", ())]
        self.body = self.schemas.at(node.get("requestBody"))[0]
        contents: list[tuple[str, Node]] = [*self.body.get("content", {}).items(), ("", {})]
        self.media_type, self.media = contents[0]

    def article(self) -> str:
        """All there is to say about it."""
        old = "<em>deprecated</em>" * self.node.get("deprecated", False)
        head = f'<h3>{self.heading}</h3> <span class="summary">{_line(self.node.get("summary"))} {old}</span>'
        html = _prose(self.node.get("description"))
        if self.parameters:
            rows = [(p["name"], _of(p), p["in"] + ", required" * p.get("required", False)) for p in self.parameters]
            html += f"<h4>Parameters</h4>{self.schemas.fields(rows)}"
        if self.body:
            html += f"<h4>Body</h4>{self._content(self.body)}<h4>Example body</h4>"
            html += f'<pre tabindex="0"><code>{escape(self._example())}</code></pre>'
        html += f'<h4>curl</h4><pre tabindex="0"><code>{self._curl()}</code></pre>{self._form()}<h4>Answers</h4>'
        for status, response in sorted(self.node.get("responses", {}).items()):
            answer = self.schemas.at(response)[0]
            inside = f"<summary><code>{escape(status)}</code> {_line(answer.get('description'))}</summary>"
            inside += self._content(answer) or "<p>No body.</p>"
            html += f"<details{' open' * status.startswith('2')}>{inside}</details>"
        return f'<article id="{self.anchor}"><details class="route"><summary>{head}</summary>{html}</details></article>'

    def _content(self, node: Node) -> str:
        """The schemas of a body, under their media type unless it is plain JSON."""
        html = ""
        for media_type, media in node.get("content", {}).items():
            html += "" if media_type == "application/json" else f"<p><code>{escape(media_type)}</code></p>"
            schema = media.get("schema")
            html += (
                f'<p><span class="type">{escape(self.schemas.words(schema))}</span> {self.schemas.meaning(schema)}</p>'
            )
            html += self.schemas.table(schema)
        return html

    def _example(self, indent: int | None = 2) -> str:
        """A body to send."""
        given = _given(self.media)
        value = self.schemas.example(self.media.get("schema")) if given is _NOTHING else given
        if isinstance(value, str) and self.media_type != "application/json":
            return value
        return json.dumps({} if value is _NOTHING else value, indent=indent, ensure_ascii=False)

    def _value(self, parameter: Node) -> str:
        """A parameter to send; without a better one its name in capitals."""
        value = _given(parameter)
        if value is _NOTHING:
            value = self.schemas.example(_of(parameter), word=parameter["name"].upper())
        return value if isinstance(value, str) else json.dumps(value)

    def _curl(self) -> str:
        """The line for a shell, as HTML."""
        base = _base(self.openapi)
        url = (base if base.startswith("http") else ORIGIN + base) + self.path
        query, headers = [], []
        for parameter in self.parameters:
            name, value = parameter["name"], self._value(parameter)
            if parameter["in"] == "path":
                url = url.replace(f"{{{name}}}", quote(value, safe=""))
            elif parameter.get("required") and parameter["in"] == "query":
                query.append(f"{quote(name)}={quote(value)}")
            elif parameter.get("required"):
                headers.append(f"-H {shlex.quote(f'{name}: {value}')}")
        if (key := self._key()) and ("security" in self.node or "security" in self.openapi):
            headers.append(f'-H "{key}$KEY"')  # in double quotes, so that the shell puts the key there
        if self.body:
            headers.append(f"-H {shlex.quote(f'Content-Type: {self.media_type}')}")
            headers.append(f"-d {shlex.quote(self._example(None))}")
        method = "" if self.method == "get" else f"-X {self.method.upper()} "
        first = f"curl {method}{shlex.quote(url + '?' * bool(query) + '&'.join(query))}"
        return escape(" \\\n  ".join([first, *headers])).replace(ORIGIN, f'<span class="origin">{ORIGIN}</span>')

    def _key(self) -> str:
        """The header that carries the key, up to where the key stands; "" if none is asked for."""
        schemes = self.openapi.get("components", {}).get("securitySchemes", {})
        security = self.node.get("security", self.openapi.get("security", () if schemes else None))
        if security is None:
            return "Authorization: Bearer "  # nothing is said about keys: sent if one is entered
        for scheme in [schemes.get(name, {}) for requirement in security for name in requirement]:
            if scheme.get("in") == "header":
                return re.sub(r"[^\w-]", "", scheme["name"]) + ": "
            if scheme.get("scheme", "").lower() == "bearer":
                return "Authorization: Bearer "
        return ""

    def _form(self) -> str:
        """ "Try it", hidden until the script shows it."""
        html = ""
        for p in self.parameters:
            name, must = escape(p["name"]), " required" * p.get("required", False)
            html += f'<label>{name} <input data-in="{escape(p["in"])}" name="{name}" autocomplete="off"{must} '
            known = "value" if must and _given(p) is not _NOTHING else "placeholder"
            html += f'{known}="{escape(self._value(p))}"></label>'
        if self.body:
            html += f'<label>Body <textarea data-type="{escape(self.media_type)}" rows="12" spellcheck="false">'
            html += f"{escape(self._example())}</textarea></label>"
        html += '<button>Send</button> <output></output><pre tabindex="0" hidden></pre>'
        data = f'data-path="{escape(_base(self.openapi) + self.path)}" data-key="{self._key()}"'
        form = f'<form data-method="{self.method.upper()}" {data}>{html}</form>'
        return f'<details class="try" hidden><summary>Try it</summary>{form}</details>'


class _Schemas:
    """Says schemas in words, in nested tables and in examples."""

    def __init__(self, openapi: Node) -> None:
        self.openapi = openapi

    def at(self, node: Any, seen: Seen = ()) -> tuple[Node, Seen]:
        """`node` with `$ref` and `allOf` replaced by what they mean, and the references gone through so far."""
        if not isinstance(node, Mapping):
            return {}, seen  # none, or true, which is a schema too: anything
        merged, parts = dict[str, Any](), list(node.get("allOf", ()))
        if "$ref" in node:
            merged["title"] = str(node["$ref"]).rsplit("/", 1)[-1]
            if node["$ref"] in seen or len(seen) >= _DEPTH:
                merged["recursive"] = True
            else:
                target: Any = self.openapi
                for step in str(node["$ref"]).removeprefix("#/").split("/"):
                    target = target.get(step) if isinstance(target, Mapping) else None
                parts.append(target)
                seen = (*seen, node["$ref"])
        for part in parts:
            found, seen = self.at(part, seen)
            inherited = {**merged.get("properties", {}), **found.get("properties", {})}
            merged |= {**found, "properties": inherited} if inherited else found
        return {**merged, **{key: value for key, value in node.items() if key not in ("$ref", "allOf")}}, seen

    def words(self, node: Any, seen: Seen = ()) -> str:
        """A schema in a few words: "list of Candidate", "string or null"."""
        schema, seen = self.at(node, seen)
        if values := [schema["const"]] if "const" in schema else schema.get("enum"):
            return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)
        words = [self.words(option, seen) for option in _options(schema)]
        for kind in () if words else _kinds(schema):
            inner = schema.get("items" if kind == "array" else "additionalProperties")
            if kind == "object" and "title" in schema:
                words.append(schema["title"])
            elif inner:
                word = re.sub("(.* or .*)", r"(\1)", self.words(inner, seen))
                words.append(f"{'list' if kind == 'array' else 'map'} of {word}")
            else:
                form = f" ({schema['format']})" if "format" in schema else ""
                words.append(("list" if kind == "array" else kind) + form)
        return " or ".join(dict.fromkeys(words)) or str(schema.get("title", "anything"))

    def table(self, node: Any, seen: Seen = ()) -> str:
        """The fields of a schema and of all that is inside it, as nested tables; "" if it has none."""
        schema, seen = self.at(node, seen)
        if options := _options(schema):
            tables: dict[str, list[str]] = {}  # alternatives with the same fields, one or a list of them, share a table
            for option in options:
                tables.setdefault(self.table(option, seen), []).append(self.words(option, seen))
            tables.pop("", None)
            heads = [f'<p class="option">If {escape(" or ".join(names))}</p>' for names in tables.values()]
            return "".join(head * (len(tables) > 1) + table for head, table in zip(heads, tables, strict=True))
        if properties := schema.get("properties"):
            must = schema.get("required", ())
            return self.fields([(name, field, "required" * (name in must)) for name, field in properties.items()], seen)
        inner = schema.get("items") or schema.get("additionalProperties")
        return self.table(inner, seen) if inner else ""

    def fields(self, rows: Iterable[tuple[str, Any, str]], seen: Seen = ()) -> str:
        """A table of (name, schema, note), each with the table of what is inside it."""
        html = ""
        for name, node, note in rows:
            words = escape(self.words(node, seen))
            html += f'<tr><th scope="row"><code>{escape(name)}</code> <span class="note">{escape(note)}</span></th>'
            html += f'<td class="type">{words}</td><td>{self.meaning(node, seen)}</td></tr>'
            if table := self.table(node, seen):
                table = f"<details open><summary>{words}</summary>{table}</details>"
                html += f'<tr class="inside"><td colspan="3">{table}</td></tr>'
        head = '<thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col">Meaning</th></tr></thead>'
        return f"<table>{head}<tbody>{html}</tbody></table>"

    def meaning(self, node: Any, seen: Seen = ()) -> str:
        """What a schema says of itself, as HTML: the description, then the rules a value keeps."""
        schema, seen = self.at(node, seen)
        rules, options = _rules(schema), [option for option in _options(schema) if not self._nullable(option, seen)]
        for option in options:
            which = f"{escape(self.words(option, seen))}: " if len(options) > 1 else ""
            rules += [which + rule for rule in _rules(self.at(option, seen)[0])]
        rules += [f"each {rule}" for rule in _rules(self.at(schema.get("items"), seen)[0])]
        rules += ["as above"] * schema.get("recursive", False)
        if schema.get("default") is not None:
            rules.append(f"default <code>{escape(json.dumps(schema['default']))}</code>")
        if schema.get("examples") and _given(schema) != schema.get("default"):
            rules.append(f"e.g. <code>{escape(json.dumps(_given(schema)))}</code>")
        return f'{_line(schema.get("description"))} <span class="rules">{"; ".join(dict.fromkeys(rules))}</span>'

    def example(self, node: Any, seen: Seen = (), word: str = "text") -> Any:
        """A value the schema takes, its own example if it has one; without one, what may be null is left out."""
        schema, seen = self.at(node, seen)
        value = _given(schema)
        if value is not _NOTHING or schema.get("recursive"):
            return value
        for option in _options(schema):
            if not self._nullable(option):
                # Litestar puts the limits of `Annotated[int, ...] | None` beside the alternatives, not into them.
                return self.example({"allOf": [{k: schema[k] for k in _LIMITS if k in schema}, option]}, seen, word)
        kind = _kinds(schema)[-1] if _kinds(schema) else ""
        low = _number(max(schema.get("minimum", 0), schema.get("exclusiveMinimum", -1) + 1))
        if kind == "object":
            must, values = schema.get("required", ()), {}
            for name, field in schema.get("properties", {}).items():
                if name in must or _given(self.at(field)[0]) not in (_NOTHING, None) or not self._nullable(field):
                    values[name] = self.example(field, seen)
            if not values and schema.get("additionalProperties"):
                values["name"] = self.example(schema["additionalProperties"], seen)
            return {name: value for name, value in values.items() if value is not _NOTHING}
        if kind == "array":
            item = self.example(schema.get("items"), seen)
            return [] if item in (_NOTHING, None) else [item] * schema.get("minItems", 1)
        text = word.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
        return {"integer": low, "number": low, "string": text, "boolean": False}.get(kind)

    def _nullable(self, node: Any, seen: Seen = ()) -> bool:
        schema, seen = self.at(node, seen)
        return "null" in _kinds(schema) or any(self._nullable(option, seen) for option in _options(schema))


def _groups(openapi: Node, tags: Iterable[str]) -> dict[str, list[_Operation]]:
    """Operations by their first tag, in the order of the document's tags, then of its paths; without one, last."""
    groups: dict[str, list[_Operation]] = {tag: [] for tag in tags}
    rest: list[_Operation] = []
    for path, item in openapi.get("paths", {}).items():
        for method in [method for method in _METHODS if method in item]:
            names = item[method].get("tags")
            (groups.setdefault(names[0], []) if names else rest).append(_Operation(openapi, method, path, item[method]))
    return {tag: operations for tag, operations in [*groups.items(), ("other", rest)] if operations}


def _base(openapi: Node) -> str:
    """What stands before every path: a server the document names, or the path below which it is mounted, or ""."""
    url = str((openapi.get("servers") or [{}])[0].get("url", "")).rstrip("/")
    return url if re.match(r"https?://|/(?!/)", url) else ""


def _of(parameter: Node) -> Node:
    """A parameter's schema, with the description that stands beside it."""
    return {"description": parameter.get("description"), **parameter.get("schema", {})}


def _options(schema: Node) -> list[Any]:
    return [*schema.get("oneOf", ()), *schema.get("anyOf", ())]


def _kinds(schema: Node) -> list[str]:
    return [kinds] if isinstance(kinds := schema.get("type", []), str) else list(kinds)


def _given(node: Node) -> Any:
    """The first value that a schema or a media type gives for itself, or `_NOTHING`."""
    examples = node.get("examples") or ()
    values = [example.get("value") for example in examples.values()] if isinstance(examples, Mapping) else [*examples]
    values += [node[key] for key in ("example", "const", "default") if key in node]
    return next(iter([*values, *node.get("enum", ())]), _NOTHING)


def _rules(schema: Node) -> list[str]:
    return [text.format(escape(str(_number(schema[key])))) for key, text in _LIMITS.items() if key in schema]


def _number(value: Any) -> Any:
    """1000.0, as Litestar writes limits, as 1000."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _line(text: str | None) -> str:
    """Text as HTML, with `code` between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text or ""))


def _prose(text: str | None) -> str:
    """Paragraphs, parted by empty lines."""
    return "".join(f"<p>{_line(part)}</p>" for part in re.split(r"\n\s*\n", text or "") if part.strip())
