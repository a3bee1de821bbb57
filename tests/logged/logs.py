"""Logs of a shop whose users like feature f0, in each format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

Body = dict[str, Any]


def lists(count: int, n: int = 5, width: int = 3, seed: int = 0) -> list[Body]:
    """Logged lists: each shows n items, and the one with the largest f0 is clicked."""
    rng = np.random.default_rng(seed)
    found = []
    for t in range(count):
        rows = rng.random((n, width)).round(6).tolist()
        items = [{"id": f"i{i}", "features": {f"f{j}": v for j, v in enumerate(row)}} for i, row in enumerate(rows)]
        best = max(range(n), key=lambda i: rows[i][0])
        found.append({"query": f"q{t % 3}", "items": items, "clicks": [f"i{best}"]})
    return found


def write_json_lines(path: Path, found: list[Body]) -> Path:
    text = "".join(f"{json.dumps(one)}\n" for one in found).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def rows_of(found: list[Body]) -> list[Body]:
    """The same as rows of a table, an item each."""
    return [
        {
            "list": f"l{number}",
            "query": one["query"],
            "position": position,
            "item": item["id"],
            "click": int(item["id"] in one["clicks"]),
            **item["features"],
        }
        for number, one in enumerate(found)
        for position, item in enumerate(one["items"], 1)
    ]


def write_tsv(path: Path, rows: list[Body]) -> Path:
    lines = ["\t".join(rows[0]), *("\t".join("" if v is None else str(v) for v in row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_parquet(path: Path, rows: list[Body]) -> Path:
    parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    return path
