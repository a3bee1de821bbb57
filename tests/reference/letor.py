"""LETOR text the plain way: split, float, dict."""

from __future__ import annotations

import numpy as np

from rankloop.core.types import Array


def parse(text: str) -> tuple[Array, Array, list[str], list[int]]:
    """Features (N, d), grades (N,), query ids and documents per query, of text that is right."""
    by_query: dict[str, list[tuple[int, dict[int, float]]]] = {}
    for line in text.split("\n"):
        tokens = line.split("#")[0].split()
        if not tokens:
            continue
        cells = dict(cell.split(":") for cell in tokens[2:])
        features = {int(index): float(value) for index, value in cells.items()}
        by_query.setdefault(tokens[1].removeprefix("qid:"), []).append((int(float(tokens[0])), features))
    rows = [row for documents in by_query.values() for row in documents]
    width = max(index for _, features in rows for index in features)
    table = np.array([[features.get(index, 0.0) for index in range(1, width + 1)] for _, features in rows])
    return table, np.array([grade for grade, _ in rows]), list(by_query), [len(rows) for rows in by_query.values()]


def minmax(features: Array, lengths: list[int]) -> Array:
    """(x - low) / (high - low) within each query, 0 where high = low."""
    out, begin = [], 0
    for length in lengths:
        rows = features[begin : begin + length]
        for row in rows:
            scaled = []
            for j, value in enumerate(row):
                low, high = min(rows[:, j]), max(rows[:, j])
                scaled.append(0.0 if low == high else (value - low) / (high - low))
            out.append(scaled)
        begin += length
    return np.array(out)
