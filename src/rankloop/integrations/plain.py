"""Our own JSON: everything that a score is made of, in full precision, for programs that score by themselves."""

from __future__ import annotations

import json
from typing import Any

from rankloop.integrations.score_terms import Exported, Linear

FORMAT = "rankloop/linear"
FORMAT_VERSION = 1


def plain(model: Linear) -> Exported:
    """A model as JSON; docs/export.md says how to score with it.

    >>> import numpy as np
    >>> model = Linear("shop-v3", ["year"], np.array([0.5]), "stream", np.array([1970.0]), np.array([30.0]), None, [])
    >>> json.loads(plain(model).body)["features"]
    [{'name': 'year', 'weight': 0.5, 'middle': 1970.0, 'spread': 30.0}]
    """
    features = []
    for j, name in enumerate(model.features):
        entry: dict[str, Any] = {"name": name, "weight": float(model.weights[j])}
        if model.normalisation == "stream":
            entry |= {"middle": float(model.middle[j]), "spread": float(model.spread[j])}
        features.append(entry)
    made = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "name": model.name,
        "normalisation": model.normalisation,
        "features": features,
        "base_order": model.base,
        "notes": model.notes,
    }
    return Exported(
        model.name, json.dumps(made, indent=2, ensure_ascii=False).encode(), "application/json", model.notes
    )
