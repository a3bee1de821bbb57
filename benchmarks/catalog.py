"""Ranking by catalog ids beside features in the body (packed, rows, names), and what a large catalog costs."""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from argparse import ArgumentParser
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.common import machine, print_rows, service
from rankloop.client import Client

FORMS = {"ids": "ids", "packed": "features, packed", "rows": "features, rows", "named": "features by name"}


def items(count: int, fields: int, strings: bool, seed: int = 0) -> Iterator[bytes]:
    """Items as lines of JSON."""
    rng = np.random.default_rng(seed)
    names = [f"f{j}" for j in range(fields)]
    for first in range(0, count, 1000):
        rows = rng.normal(size=(min(1000, count - first), fields)).round(4).tolist()
        for i, row in enumerate(rows, first):
            one: dict[str, Any] = {"id": f"item-{i}", **dict(zip(names, row, strict=True))}
            if strings:
                one |= {"brand": f"brand {i % 500}", "title": f"a thing of kind {i % 9973} in color {i % 31}"}
            yield msgspec.json.encode(one)


def loaded(client: Client, count: int, fields: int, strings: bool) -> dict[str, Any]:
    """Load a catalog; what it took."""
    start = time.perf_counter()
    counts = client.catalog("shop").put(items(count, fields, strings)).counts
    seconds = time.perf_counter() - start
    assert counts.get("accepted") == count, counts
    start = time.perf_counter()
    while (info := client.catalog("shop").info()).items.behind:
        time.sleep(0.02)
    return {
        "items": f"{count:,}",
        "fields": f"{fields}" + " + 2 strings" * strings,
        "load s": round(seconds, 1),
        "items a second": f"{count / seconds:,.0f}",
        "seen after s": round(time.perf_counter() - start, 2),
        "memory MB": round(info.memory / 1e6, 1),
    }


def rankers(client: Client, fields: int) -> None:
    """One that is sent its features, and one that computes them."""
    names = [f"f{j}" for j in range(fields)]
    common: dict[str, Any] = {"learner": "pairrank", "exposure": "full", "guardrail": None, "k": 10}
    declared = [{"name": name, "kind": "field", "of": f"item.{name}", "default": 0} for name in names]
    client.put_ranker("sent", features=names, wait=True, **common)
    client.put_ranker("declared", features=declared, catalog="shop", wait=True, **common)


def latencies(url: str, count: int, fields: int, rounds: int) -> list[dict[str, Any]]:
    """p50 and p99 of each form."""
    rng, names = np.random.default_rng(1), [f"f{j}" for j in range(fields)]
    table = np.array([list(json.loads(line).values())[1:] for line in items(5000, fields, False)])
    address = url.removeprefix("http://")
    connections = {form: http.client.HTTPConnection(address) for form in FORMS}
    took: dict[str, list[float]] = {form: [] for form in connections}
    for turn in range(rounds + 50):
        chosen = rng.choice(min(5000, count), 100, replace=False)
        ids = [f"item-{i}" for i in chosen]
        rows = table[chosen]
        bodies = {
            "ids": {"query": "q", "ids": ids},
            "packed": {"query": "q", "ids": ids, "features": b64encode(rows.tobytes()).decode()},
            "rows": {"query": "q", "ids": ids, "features": rows.tolist()},
            "named": {
                "query": "q",
                "candidates": [
                    {"id": item, "features": dict(zip(names, row, strict=True))}
                    for item, row in zip(ids, rows.tolist(), strict=True)
                ],
            },
        }
        sent = {form: json.dumps(body).encode() for form, body in bodies.items()}
        for form in (list(FORMS) * 2)[turn % len(FORMS) :][: len(FORMS)]:  # each is as often the first
            data = sent[form]
            name = "declared" if form == "ids" else "sent"
            start = time.perf_counter()
            connections[form].request("POST", f"/v1/rankers/{name}/rank", data)
            answer = connections[form].getresponse()
            text = answer.read()
            seconds = time.perf_counter() - start
            assert answer.status == 200, text
            assert b'"fallback":false' in text, text
            if turn >= 50:
                took[form].append(seconds * 1e3)
            elif form in ("ids", "packed"):  # both rankers have learned: a fresh one is slower, and nobody's for long
                found = json.loads(text)
                event = {"event_id": found["impression_id"], "impression_id": found["impression_id"], "final": True}
                told = json.dumps({**event, "clicks": [found["items"][turn % 3]["id"]]})
                connections[form].request("POST", "/v1/feedback", told)
                assert b"accepted" in connections[form].getresponse().read()
    for one in connections.values():
        one.close()
    base = {form: float(np.median(values)) for form, values in took.items()}
    least = {form: float(np.quantile(values, 0.05)) for form, values in took.items()}
    size = {form: len(json.dumps(body)) for form, body in bodies.items()}
    return [
        {
            "the request has": FORMS[form],
            "bytes": f"{size[form]:,}",
            "p5 ms": round(float(np.quantile(values, 0.05)), 3),
            "p50 ms": round(base[form], 3),
            "p99 ms": round(float(np.quantile(values, 0.99)), 3),
            "ids' share of p50": "" if form == "ids" else round(base["ids"] / base[form], 2),
            "of p5": "" if form == "ids" else round(least["ids"] / least[form], 2),
        }
        for form, values in took.items()
    ]


def main() -> None:
    """The command."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--fields", type=int, default=136)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--large", type=int, default=1_000_000, help="items of the second catalog; 0: none")
    parser.add_argument("--large-fields", type=int, default=10)
    given = parser.parse_args()
    print(machine())
    sizes = []
    for count, fields, strings in ((given.items, given.fields, False), (given.large, given.large_fields, True)):
        if not count:
            continue
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "store.db"
            with service(store) as one, Client(one.url, timeout=120) as client:
                rankers(client, fields)
                line = loaded(client, count, fields, strings)
                if not strings:
                    print_rows(latencies(one.url, count, fields, given.rounds))
            line["store MB"] = round(store.stat().st_size / 1e6, 1)
            start = time.perf_counter()
            with service(store) as one, Client(one.url, timeout=120) as client:
                line["restart s"] = round(time.perf_counter() - start, 1)
                assert client.catalog("shop").info().items.count == count
            sizes.append(line)
    print_rows(sizes)


if __name__ == "__main__":
    main()
