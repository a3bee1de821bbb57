"""Models for the learning-to-rank plugins of Elasticsearch and OpenSearch: `model/linear` with `feature_normalizers`.

The body of `POST /_ltr/_featureset/{set}/_createmodel`. Models cannot be changed, so the name carries the version.
"""

from __future__ import annotations

import json

from rankloop.integrations.linear_model import Exported, LinearModel, in_engine, single


def elasticsearch(model: LinearModel, engine: str = "elasticsearch") -> Exported:
    """Export a model for `_createmodel`.

    >>> import numpy as np
    >>> mean, spread = np.array([1970.0]), np.array([30.0])
    >>> model = LinearModel("shop-v3", ["year"], np.array([0.5]), "stream", mean, spread, None, [])
    >>> print(elasticsearch(model).body.decode())
    {
      "model": {
        "name": "shop-v3",
        "model": {
          "type": "model/linear",
          "feature_normalizers": {
            "year": {
              "standard": {
                "mean": 1970.0,
                "standard_deviation": 30.0
              }
            }
          },
          "definition": "{\\"year\\": 0.5}"
        }
      }
    }
    """
    model = in_engine(model, engine)
    weights = {name: single(weight) for name, weight in zip(model.features, model.weights.tolist(), strict=True)}
    linear: dict[str, object] = {"type": "model/linear"}
    if model.normalization == "stream":
        linear["feature_normalizers"] = {
            name: {"standard": {"mean": single(middle), "standard_deviation": single(spread)}}
            for name, middle, spread in zip(model.features, model.middle.tolist(), model.spread.tolist(), strict=True)
            if single(spread) > 0.0
        }
    linear["definition"] = json.dumps(weights, ensure_ascii=False)
    body = json.dumps({"model": {"name": model.name, "model": linear}}, indent=2, ensure_ascii=False)
    return Exported(model.name, body.encode(), "application/json", model.notes)
