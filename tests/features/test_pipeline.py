"""Declared features: each kind by hand, what is missing or unknown, and that counts hold nothing of the list itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array
from rankloop.features.context import FeatureContext, Request
from rankloop.features.counters import CountedOutcome
from rankloop.features.pipeline import FeaturePipeline
from rankloop.features.table import Table

NOW = 1_700_000_000.0
DAY = 86400.0


def shop() -> tuple[Table, Table]:
    items, users = Table(), Table()
    items.upsert(
        "a",
        {
            "price": 10,
            "brand": "acme",
            "tags": ["red", "new"],
            "title": "Red running shoes",
            "listed": NOW - DAY,
            "vector": [1.0, 0.0],
            "sale": True,
        },
    )
    items.upsert(
        "b",
        {"price": 30, "brand": "apex", "tags": ["blue"], "title": "Blue shoes", "listed": NOW, "vector": [1.0, 1.0]},
    )
    items.upsert("bare", {})
    users.upsert("u", {"likes": ["red", "blue"], "vector": [0.0, 2.0], "age": 40})
    return items, users


def made(given: dict[str, Any] | str, **request: Any) -> tuple[Array, FeaturePipeline]:
    """The columns of one declaration for the items a, b, one without fields and one that nobody knows."""
    items, users = shop()
    pipeline = FeaturePipeline.from_spec([given if isinstance(given, str) else {"name": "x", **given}])
    asked = Request(["a", "b", "bare", "nobody"], time=NOW, **request)
    rows = pipeline.rows(
        FeatureContext(asked, items, users) if pipeline.needs.counters else pipeline.context(asked, items, users)
    )
    assert rows.shape == (4, pipeline.width) == (4, len(pipeline.columns))
    assert pipeline.unknown == 1
    return rows, pipeline


@pytest.mark.parametrize(
    ("given", "request_", "wanted", "missing"),
    [
        ({"kind": "field", "of": "item.price"}, {}, [10, 30, 20, 20], 1),
        ({"kind": "field", "of": "item.price", "default": 5}, {}, [10, 30, 5, 5], 1),
        ({"kind": "field", "of": "item.price", "log": True}, {}, np.log1p([10, 30, 20, 20]), 1),
        ({"kind": "field", "of": "item.sale", "default": 0}, {}, [1, 0, 0, 0], 2),
        ({"kind": "field", "of": "item.weight"}, {}, [0, 0, 0, 0], 3),
        ({"kind": "field", "of": "user.age"}, {"user": "u"}, [40] * 4, 0),
        ({"kind": "field", "of": "user.age", "default": 7}, {"user": "stranger"}, [7] * 4, 3),
        ({"kind": "field", "of": "request.depth"}, {"fields": {"depth": 2}}, [2] * 4, 0),
        ({"kind": "age", "of": "item.listed", "log": False}, {}, [1, 0, 0.5, 0.5], 1),
        ({"kind": "age", "of": "item.listed", "unit": "1h", "default": 3}, {}, [math.log1p(24), 0, 3, 3], 1),
        ({"kind": "match", "of": "item.brand", "to": "request.brand"}, {"fields": {"brand": "apex"}}, [0, 1, 0, 0], 1),
        ({"kind": "match", "of": "item.brand", "to": "request.brand"}, {}, [0, 0, 0, 0], 3),
        ({"kind": "match", "of": "item.tags", "to": "user.likes"}, {"user": "u"}, [0.5, 0.5, 0, 0], 1),
        (
            {"kind": "match", "of": "item.tags", "to": "user.likes", "measure": "jaccard"},
            {"user": "u"},
            [1 / 3, 0.5, 0, 0],
            1,
        ),
        ({"kind": "match", "of": "item.tags", "to": "query"}, {"query": "RED thing"}, [0.5, 0, 0, 0], 1),
        ({"kind": "text", "of": "item.title", "measure": "share"}, {"query": "red shoes"}, [1, 0.5, 0, 0], 1),
        ({"kind": "text", "of": "item.title", "measure": "share"}, {"query": ""}, [0, 0, 0, 0], 3),
        ({"kind": "cosine", "of": "item.vector", "to": "user.vector"}, {"user": "u"}, [0, math.sqrt(0.5), 0, 0], 1),
        ({"kind": "cosine", "of": "item.vector", "to": "request.v"}, {"fields": {"v": [1, 0, 0]}}, [0] * 4, 3),
        ("sent", {"sent": {"sent": np.arange(4.0)}}, [0, 1, 2, 3], 0),
    ],
)
def test_each_kind_by_hand(
    given: dict[str, Any] | str, request_: dict[str, Any], wanted: list[float], missing: int
) -> None:
    rows, pipeline = made(given, **request_)
    assert rows[:, 0] == pytest.approx(np.array(wanted))
    assert sum(pipeline.missing.values()) == missing


def test_categories() -> None:
    rows, pipeline = made({"kind": "category", "of": "item.tags", "values": ["blue", "red"]})
    assert rows.tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]
    assert pipeline.missing["x"] == 1
    rows, _ = made({"kind": "category", "of": "item.sale", "values": ["true", "false"]})
    assert rows.tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]
    hashed, _ = made({"kind": "category", "of": "item.tags", "buckets": 1000})
    assert hashed.sum(axis=1).tolist() == [2, 1, 0, 0]
    crossed, _ = made({"kind": "category", "of": ["user.likes", "item.tags"], "buckets": 4096}, user="u")
    assert crossed.sum(axis=1).tolist() == [4, 2, 0, 0]
    other, _ = made({"kind": "category", "of": ["user.likes", "item.tags"], "buckets": 4096}, user="stranger")
    assert not other.any()


def test_bm25_prefers_rare_words_and_short_texts() -> None:
    rows, _ = made({"kind": "text", "of": "item.title"}, query="red shoes")
    idf = [math.log1p((3 - had + 0.5) / (had + 0.5)) for had in (1, 2)]
    weights = [2.2 / (1 + 1.2 * (0.25 + 0.75 * length / 2.5)) for length in (3, 2)]
    assert rows[:, 0] == pytest.approx([(idf[0] + idf[1]) * weights[0], idf[1] * weights[1], 0, 0])


COUNTING: list[str | dict[str, Any]] = [
    {"name": "clicks", "kind": "count", "by": "item", "log": False},
    {"name": "shown", "kind": "count", "of": "impressions", "by": "item", "window": "1d", "log": False},
    {"name": "ctr", "kind": "rate", "by": "item", "prior": 1.0},
    {"name": "brand", "kind": "rate", "by": "item.brand", "prior": 1.0},
    {"name": "here", "kind": "count", "by": ["item", "query"], "log": False},
    {"name": "asked", "kind": "count", "of": "impressions", "by": "query", "log": False},
    {"name": "mine", "kind": "count", "by": ["user", "item.tags"], "log": False},
    {"name": "again", "kind": "clicked", "of": "item.tags"},
]


def test_counts_rates_and_last_clicks_by_hand() -> None:
    items, users = shop()
    pipeline = FeaturePipeline.from_spec(COUNTING)
    counters = pipeline.counters()
    assert counters is not None
    asked = Request(["a", "b", "bare", "nobody"], "red shoes", "u", NOW)

    def columns(request: Request) -> dict[str, list[float]]:
        rows = pipeline.rows(pipeline.context(request, items, users, counters))
        return dict(zip(pipeline.columns, rows.T.tolist(), strict=True))

    before = columns(asked)
    assert not any(any(column) for column in before.values())
    context = pipeline.context(asked, items, users, counters)
    notes = pipeline.notes(context, np.array([1, 0, 3]), {})
    counters.fold(CountedOutcome(NOW, np.array([0.0, 1.0, 0.0]), notes))  # b, a, nobody were shown, a was clicked
    after = columns(asked)
    looks = 1 / np.log2([2, 3, 4])
    mean = 1 / looks.sum()
    assert after["clicks"] == [1, 0, 0, 0]
    assert after["shown"] == [1, 1, 0, 1]
    rates = [(1 + mean) / (looks[1] + 1), mean / (looks[0] + 1), mean, mean / (looks[2] + 1)]
    assert after["ctr"] == pytest.approx(rates)
    assert after["brand"] == pytest.approx([rates[0], rates[1], mean, mean])
    assert after["here"] == [1, 0, 0, 0]
    assert columns(asked._replace(query="RED  shoes!"))["here"] == [1, 0, 0, 0]
    assert columns(asked._replace(query="blue shoes"))["here"] == [0, 0, 0, 0]
    assert after["asked"] == [1, 1, 1, 1]
    assert after["mine"] == [1, 0, 0, 0]  # of red and of new, one click each
    assert after["again"] == [1, 0, 0, 0]
    assert columns(asked._replace(user="stranger"))["again"] == [0, 0, 0, 0]
    assert columns(asked._replace(time=NOW + 2 * DAY))["shown"] == [0, 0, 0, 0]
    assert columns(asked._replace(time=NOW + 40 * DAY))["again"] == [0, 0, 0, 0]
    assert counters.forget("u") == 4  # three tags, and the clicks themselves
    assert columns(asked)["mine"] == columns(asked)["again"] == [0, 0, 0, 0]
    assert columns(asked)["clicks"] == [1, 0, 0, 0]


def test_sparse_rows_are_the_same_without_zeros() -> None:
    items, users = shop()
    pipeline = FeaturePipeline.from_spec(
        [
            {"name": "price", "kind": "field", "of": "item.price", "default": 0},
            {"name": "tag", "kind": "category", "of": "item.tags", "buckets": 50},
            {"name": "taste", "kind": "category", "of": ["user.likes", "item.tags"], "buckets": 70},
            {"name": "brand", "kind": "category", "of": "item.brand", "values": ["apex"]},
            {"name": "when", "kind": "time"},
        ]
    )
    context = pipeline.context(Request(["b", "nobody", "bare", "a"], user="u", time=NOW), items, users)
    rows = pipeline.rows(context)
    missing, pipeline.missing = pipeline.missing, type(pipeline.missing)()
    found = pipeline.sparse(context)
    assert np.array_equal(found.dense(), rows)
    assert pipeline.missing == missing
    wide = FeaturePipeline.from_spec([{"name": "tag", "kind": "category", "of": "item.tags", "buckets": 1_000_000}])
    rows_wide = wide.sparse(wide.context(Request(["a", "b"]), items))
    assert rows_wide.shape == (2, 1_000_000)
    assert rows_wide.values.tolist() == [1.0, 1.0, 1.0]


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="declared twice"):
        FeaturePipeline.from_spec(["a", "a"])
    with pytest.raises(InvalidParameter, match=r"pass pipeline\.counters"):
        FeaturePipeline.from_spec(COUNTING).context(Request(["a"]), Table())
    wide = FeaturePipeline.from_spec([{"name": "w", "kind": "category", "of": "item.brand", "buckets": 100_000}])
    with pytest.raises(InvalidParameter, match="sparse rows"):
        wide.rows(wide.context(Request(["a"]), Table()))
