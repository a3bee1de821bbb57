"""Declarations: what a spec may say, and what it is told where it says something else."""

from __future__ import annotations

from typing import Any

import pytest

from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.features.declarations import Category, Sent, declaration, to_spec

EXAMPLES: list[dict[str, Any]] = [
    {"name": "price", "kind": "field", "of": "item.price", "default": 5.0, "log": True},
    {"name": "color", "kind": "category", "of": "item.colors", "values": ["red", "blue"]},
    {"name": "taste", "kind": "category", "of": ["user.segment", "item.brand"], "buckets": 64},
    {"name": "brand", "kind": "match", "of": "item.brand", "to": "request.brands", "measure": "jaccard"},
    {"name": "title", "kind": "text", "of": "item.title", "to": "query", "measure": "share"},
    {"name": "fresh", "kind": "age", "of": "item.published", "unit": "1h", "default": 0.0},
    {"name": "when", "kind": "time", "of": "weekday", "zone": "Europe/Berlin"},
    {"name": "near", "kind": "cosine", "of": "item.vector", "to": "user.vector"},
    {"name": "shown", "kind": "count", "of": "impressions", "by": ["item", "query"], "window": "7d", "log": False},
    {"name": "ctr", "kind": "rate", "by": "item.brand", "window": "1d", "prior": 5},
    {"name": "again", "kind": "clicked", "of": "item.brand", "last": 10, "window": "7d"},
]


@pytest.mark.parametrize("given", EXAMPLES, ids=lambda one: str(one["name"]))
def test_a_declaration_survives_being_written_down(given: dict[str, Any]) -> None:
    made = declaration(given)
    assert declaration(to_spec(made)) == made
    assert made.columns
    assert all(isinstance(name, str) for name in made.columns)


def test_a_plain_name_is_a_number_that_is_sent() -> None:
    assert declaration("bm25") == Sent("bm25")
    assert to_spec(Sent("bm25")) == "bm25"


def test_a_category_has_a_column_for_each_value_and_a_circle_has_two() -> None:
    assert declaration(EXAMPLES[1]).columns == ("color=red", "color=blue")
    crossed = declaration(EXAMPLES[2])
    assert isinstance(crossed, Category)
    assert crossed.columns[:2] == ("taste#0", "taste#1")
    assert crossed.width == len(crossed.columns) == 64
    assert declaration(EXAMPLES[6]).columns == ("when.sin", "when.cos")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "rates"}, "did you mean 'rate'"),
        ({"kind": "rate", "by": "brand"}, "must be item, user, query or a source"),
        ({"kind": "rate", "window": "7 days"}, "must be a span of time"),
        ({"kind": "rate", "prior": 0}, "of that many looks"),
        ({"kind": "rate", "of": "impressions"}, "must be one of clicks, rewards"),
        ({"kind": "field", "of": "price"}, "must be item.FIELD or user.FIELD or request.FIELD"),
        ({"kind": "field", "of": "item.price", "default": "zero"}, "mean: that of the list's other items"),
        ({"kind": "field"}, "has no 'of'"),
        ({"kind": "category", "of": "item.brand"}, "from 1 to"),
        ({"kind": "category", "of": "item.brand", "values": ["a", "a"]}, "different strings"),
        ({"kind": "category", "of": ["item.brand", "user.age"], "values": ["a"]}, "give buckets"),
        ({"kind": "match", "of": "request.brand", "to": "item.brand"}, "must be item.FIELD"),
        ({"kind": "text", "of": "item.title", "measure": "tfidf"}, "must be one of bm25, share"),
        ({"kind": "age", "of": "item.published", "unit": "all"}, "90m, 12h, 7d, 4w"),
        ({"kind": "time", "zone": "Mars/Olympus"}, "time zone such as"),
        ({"kind": "clicked", "of": "item.brand", "last": 0}, "from 1 to 100"),
        ({"kind": "count", "by": "item", "weight": 2}, "no field of feature 'x' (count) is called 'weight'"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(changes: dict[str, Any], told: str) -> None:
    with pytest.raises((InvalidParameter, UnknownName)) as caught:
        declaration({"name": "x", **changes})
    assert told in str(caught.value)
    assert "'x'" in str(caught.value)
