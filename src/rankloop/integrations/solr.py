"""Models for Solr's learning-to-rank module: `LinearModel` with a normalizer per feature.

The body of `PUT /solr/{collection}/schema/model-store`.
"""

from __future__ import annotations

import json
from typing import Any

from rankloop.integrations.linear_model import Exported, LinearModel, in_engine, single

STORE = "_DEFAULT_"  # Solr's default feature store


def solr(model: LinearModel, store: str = STORE) -> Exported:
    """Export a model for the model store.

    >>> import numpy as np
    >>> model = LinearModel("shop-v3", ["isBook"], np.array([0.5]), "none", np.zeros(1), np.ones(1), None, [])
    >>> json.loads(solr(model).body)["params"]
    {'weights': {'isBook': 0.5}}
    """
    model = in_engine(model, "solr")
    features = []
    for name, middle, spread in zip(model.features, model.middle.tolist(), model.spread.tolist(), strict=True):
        entry: dict[str, Any] = {"name": name}
        if model.normalization == "stream" and single(spread) > 0.0:
            entry["norm"] = {
                "class": "org.apache.solr.ltr.norm.StandardNormalizer",
                "params": {"avg": str(single(middle)), "std": str(single(spread))},  # Solr requires strings
            }
        features.append(entry)
    weights = {name: single(weight) for name, weight in zip(model.features, model.weights.tolist(), strict=True)}
    made = {
        "class": "org.apache.solr.ltr.model.LinearModel",
        "name": model.name,
        "store": store,
        "features": features,
        "params": {"weights": weights},
    }
    return Exported(
        model.name, json.dumps(made, indent=2, ensure_ascii=False).encode(), "application/json", model.notes
    )
