"""Microseconds from the body of a rank request to ids and one array, by form and by reader."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from operator import itemgetter
from statistics import median
from struct import Struct
from typing import Any

import msgspec
import numpy as np
import simdjson as _simdjson

from rankloop.core.types import Array
from rankloop.service.serving.schema import Schema
from rankloop.wire.calls import RankColumns, RankRequest
from rankloop.wire.rankers import Spec

simdjson: Any = _simdjson  # its proxies are of three types that all look alike
SIZES = ((100, 136), (20, 20))
TURNS = 200
Reader = Callable[[bytes], Any]


def bodies(n: int, d: int, digits: int = 6) -> tuple[list[str], dict[str, bytes]]:
    """Feature names, and the same request in every form."""
    rows = np.random.default_rng(0).random((n, d)).round(digits)
    names, ids = [f"feature_{j}" for j in range(d)], [f"item-{i:05d}" for i in range(n)]
    listed = rows.tolist()
    tables: dict[str, Any] = {
        "columns": listed,
        "columns by name": dict(zip(names, rows.T.tolist(), strict=True)),
        "packed float64": base64.b64encode(rows.astype("<f8").tobytes()).decode(),
        "packed float32": base64.b64encode(rows.astype("<f4").tobytes()).decode(),
    }
    by_name = [dict(zip(names, row, strict=True)) for row in listed]
    made: dict[str, Any] = {}
    for form, own in (("rows by name", by_name), ("rows as lists", listed)):
        candidates = [{"id": item, "features": row} for item, row in zip(ids, own, strict=True)]
        made[form] = {"query": "red shoes", "candidates": candidates}
    made |= {form: {"query": "red shoes", "ids": ids, "features": table} for form, table in tables.items()}
    return names, {form: msgspec.json.encode(body) for form, body in made.items()}


def readers(form: str, names: list[str]) -> dict[str, Reader]:
    """The ways to read a form."""
    found: dict[str, Reader] = {"service": Schema(Spec(features=names, normalization="none")).parse}
    found["msgspec"] = _rows(names) if form.startswith("rows") else _columns(names)
    if form == "rows by name":
        found["msgspec, typed"] = _typed(names)
        found["simdjson"] = _simdjson_names(names)
    elif form == "rows as lists":
        found["simdjson"] = _simdjson_lists
    elif form == "columns":
        found["simdjson"] = _simdjson_columns
    elif form == "columns by name":
        found["simdjson"] = _simdjson_named_columns(names)
    return found


def _joined(packed: list[Any]) -> Array:
    return np.frombuffer(bytearray().join(packed))


def _rows(names: list[str]) -> Reader:
    decode = msgspec.json.Decoder(RankRequest).decode
    pack, pick = Struct(f"{len(names)}d").pack, itemgetter(*names)

    def read(body: bytes) -> Any:
        given = decode(body).candidates
        rows = [pack(*(pick(one.features) if type(one.features) is dict else one.features or ())) for one in given]
        return [one.id for one in given], _joined(rows)

    return read


def _columns(names: list[str]) -> Reader:
    decode, pack = msgspec.json.Decoder(RankColumns).decode, Struct(f"{len(names)}d").pack

    def read(body: bytes) -> Any:
        found = decode(body)
        given = found.features
        if isinstance(given, bytes):
            kind = "<f4" if len(given) == len(found.ids) * len(names) * 4 else "<f8"
            return found.ids, np.frombuffer(given, kind).astype(np.float64)
        if isinstance(given, dict):
            return found.ids, np.array([given[name] for name in names], dtype=np.float64).T.copy()
        return found.ids, _joined([pack(*row) for row in given or ()])

    return read


def _typed(names: list[str]) -> Reader:
    fields = [(f"f{j}", float) for j in range(len(names))]
    rename = {f"f{j}": name for j, name in enumerate(names)}
    features = msgspec.defstruct("Features", fields, rename=rename, gc=False)
    candidate: Any = msgspec.defstruct("Candidate", [("id", str), ("features", features)], gc=False)
    decode: Any = msgspec.json.Decoder(msgspec.defstruct("Request", [("candidates", list[candidate])])).decode
    pack, values = Struct(f"{len(names)}d").pack, msgspec.structs.astuple

    def read(body: bytes) -> Any:
        given = decode(body).candidates
        return [one.id for one in given], _joined([pack(*values(one.features)) for one in given])

    return read


def _simdjson_names(names: list[str]) -> Reader:
    pack = Struct(f"{len(names)}d").pack

    def read(body: bytes) -> Any:
        ids, rows = [], []
        for one in simdjson.Parser().parse(body)["candidates"]:
            ids.append(one["id"])
            rows.append(pack(*one["features"].values()))  # names are not even looked at
        return ids, _joined(rows)

    return read


def _simdjson_lists(body: bytes) -> Any:
    ids, rows = [], []
    for one in simdjson.Parser().parse(body)["candidates"]:
        ids.append(one["id"])
        rows.append(one["features"].as_buffer(of_type="d"))
    return ids, _joined(rows)


def _simdjson_columns(body: bytes) -> Any:
    found = simdjson.Parser().parse(body)
    return found["ids"].as_list(), np.frombuffer(found["features"].as_buffer(of_type="d"))


def _simdjson_named_columns(names: list[str]) -> Reader:
    def read(body: bytes) -> Any:
        found = simdjson.Parser().parse(body)
        columns = found["features"]
        joined = _joined([columns[name].as_buffer(of_type="d") for name in names]).reshape(len(names), -1)
        return found["ids"].as_list(), np.ascontiguousarray(joined.T)

    return read


def timed(ways: dict[str, Reader], body: bytes, turns: int = TURNS) -> dict[str, float]:
    """Microseconds of each reader."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, read in ways.items():
            start = time.perf_counter()
            read(body)
            taken[name].append((time.perf_counter() - start) * 1e6)
    return {name: median(values) for name, values in taken.items()}


def run() -> list[dict[str, Any]]:
    """A line for each size and form."""
    rows = []
    for n, d in SIZES:
        names, sent = bodies(n, d)
        for form, body in sent.items():
            found = timed(readers(form, names), body)
            line = {"candidates": f"{n} x {d}", "form": form, "kB": round(len(body) / 1e3, 1)}
            columns = ("msgspec", "msgspec, typed", "simdjson", "service")
            rows.append(line | {f"{name} µs": round(found[name]) if name in found else "–" for name in columns})
    return rows


if __name__ == "__main__":
    from benchmarks.common import machine, print_rows

    print(f"Machine: {machine()}\n")
    print_rows(run())
