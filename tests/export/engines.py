"""What search engines do with a model, written from their documentation: small, in float32, and reading the very JSON.

Elasticsearch and OpenSearch (plugin "Learning to Rank", `model/linear`): each feature of the set is a float, 0 where a
document does not match; a feature that `feature_normalizers` names becomes (value - mean) / standard_deviation or
(value - minimum) / (maximum - minimum); the score is the sum of weight x value over the features of the definition.
A name that the feature set does not have is an error.

Solr (`LinearModel`): the features that the model lists, each through the `norm` of its entry, then the same sum. Every
listed feature needs a weight, none may stand twice, and a standard deviation must be above 0.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from rankloop.core.types import Array


def elasticsearch_scores(body: bytes, feature_set: list[str], rows: Array) -> Array:
    """(n,) what `sltr` gives documents with these features (n, d), in the order of the feature set."""
    outer = json.loads(body)["model"]
    model = outer["model"]
    assert set(outer) == {"name", "model"}
    assert model["type"] == "model/linear"
    weights: dict[str, float] = json.loads(model["definition"])  # a text, not an object
    normalizers: dict[str, Any] = model.get("feature_normalizers", {})
    for name in (*weights, *normalizers):
        assert name in feature_set, f"unknown feature [{name}]"
    values = rows.astype(np.float32)
    scores = np.zeros(len(rows), np.float32)
    for j, name in enumerate(feature_set):
        column = values[:, j]
        if name in normalizers:
            ((kind, given),) = normalizers[name].items()
            if kind == "standard":
                assert set(given) == {"mean", "standard_deviation"}
                assert np.float32(given["standard_deviation"]) > 0
                column = (column - np.float32(given["mean"])) / np.float32(given["standard_deviation"])
            else:
                assert kind == "min_max"
                low, high = np.float32(given["minimum"]), np.float32(given["maximum"])
                column = (column - low) / (high - low)
        scores += np.float32(weights.get(name, 0.0)) * column
    return scores


def solr_scores(body: bytes, feature_store: list[str], rows: Array) -> Array:
    """(n,) what `{!ltr model=…}` gives documents with these features (n, d), in the order of the feature store."""
    model = json.loads(body)
    assert model["class"] == "org.apache.solr.ltr.model.LinearModel"
    listed = [entry["name"] for entry in model["features"]]
    weights = model["params"]["weights"]
    assert len(set(listed)) == len(listed), "duplicated feature"
    assert set(listed) == set(weights), "every listed feature needs a weight"
    scores = np.zeros(len(rows), np.float32)
    for entry in model["features"]:
        assert entry["name"] in feature_store, f"feature {entry['name']} not found in the store"
        column = rows[:, feature_store.index(entry["name"])].astype(np.float32)
        if "norm" in entry:
            assert entry["norm"]["class"] == "org.apache.solr.ltr.norm.StandardNormalizer"
            given = entry["norm"]["params"]
            assert all(isinstance(value, str) for value in given.values()), "parsed from text"
            average, deviation = np.float32(given["avg"]), np.float32(given["std"])
            assert deviation > 0, "Standard Normalizer standard deviation must be positive"
            column = (column - average) / deviation
        scores += np.float32(weights[entry["name"]]) * column
    return scores
