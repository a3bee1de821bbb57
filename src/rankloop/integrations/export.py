"""Export a model: to search engines that score by themselves, to ONNX, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, get_args

from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.scaling import StandardizedLearner
from rankloop.integrations.elasticsearch import elasticsearch
from rankloop.integrations.linear_model import Exported, LinearModel, Normalization, linear_model
from rankloop.integrations.onnx import onnx_graph
from rankloop.integrations.solr import solr

FORMAT = "rankloop/linear"
FORMAT_VERSION = 1


def to_json(model: LinearModel) -> Exported:
    """Export a model as JSON; docs/export.md says how to score with it.

    >>> import numpy as np
    >>> mean, spread = np.array([1970.0]), np.array([30.0])
    >>> model = LinearModel("shop-v3", ["year"], np.array([0.5]), "stream", mean, spread, None, [])
    >>> json.loads(to_json(model).body)["features"]
    [{'name': 'year', 'weight': 0.5, 'middle': 1970.0, 'spread': 30.0}]
    """
    features = []
    for j, name in enumerate(model.features):
        entry: dict[str, Any] = {"name": name, "weight": float(model.weights[j])}
        if model.normalization == "stream":
            entry |= {"middle": float(model.middle[j]), "spread": float(model.spread[j])}
        features.append(entry)
    made = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "name": model.name,
        "normalization": model.normalization,
        "features": features,
        "base_order": model.base,
        "notes": model.notes,
    }
    return Exported(
        model.name, json.dumps(made, indent=2, ensure_ascii=False).encode(), "application/json", model.notes
    )


__all__ = ["ENGINES", "Engine", "Exported", "export"]

Engine = Literal["elasticsearch", "opensearch", "solr", "onnx", "json"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def export(
    learner: Learner,
    features: Sequence[str],
    to: Engine,
    *,
    name: str,
    normalization: Literal["query-minmax", "none"] = "query-minmax",
) -> Exported:
    """Export a learner's model.

    Parameters
    ----------
    learner
        A trained learner; `rankloop.standardized` ones are exported with their scale.
    features
        Feature names in the learner's order, as in the engine.
    to
        "elasticsearch", "opensearch", "solr", "onnx" or "json".
    name
        Name of the model. Engines do not allow changes: include a version.
    normalization
        How you normalize features before the learner sees them; ignored for standardized learners.

    Examples
    --------
    >>> import numpy as np, rankloop
    >>> learner, rng = rankloop.standardized(rankloop.make("pairrank")), np.random.default_rng(0)
    >>> shoes = rankloop.Candidates("shoes", ["a", "b"], [[17.0, 4000.0], [7.0, 1000.0]])
    >>> for _ in range(20):
    ...     shown = learner.rank(shoes, 2, rng)
    ...     learner.learn(shown, rankloop.Feedback.clicked(shown, ["b"]), rng)
    >>> made = export(learner, ["bm25", "price"], "solr", name="shop-v1")
    >>> b"StandardNormalizer" in made.body
    True
    """
    if to not in ENGINES:
        raise InvalidParameter(f"to is {to!r}; it must be one of {', '.join(ENGINES)}")
    if len(set(features)) < len(features):
        raise InvalidParameter(f"a name occurs twice in {', '.join(features)}; give each once")
    how: Normalization = "stream" if isinstance(learner, StandardizedLearner) else normalization
    if to == "onnx":
        return onnx_graph(learner, features, how, name)
    model = linear_model(learner, features, how, name)
    if to == "json":
        return to_json(model)
    if to == "solr":
        return solr(model)
    return elasticsearch(model, to)
