"""Take what was learned away: to a search engine that scores by itself, to a runtime for networks, as plain JSON.

One file an engine, each a pure function from what is known of a model (`parts.Linear`, or the learner) to its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.scaling import StandardizedLearner
from rankloop.integrations.elasticsearch import elasticsearch
from rankloop.integrations.onnx import onnx_graph
from rankloop.integrations.plain import plain
from rankloop.integrations.score_terms import Exported, Normalisation, linear_of
from rankloop.integrations.solr import solr

__all__ = ["ENGINES", "Engine", "Exported", "export"]

Engine = Literal["elasticsearch", "opensearch", "solr", "onnx", "json"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def export(
    learner: Learner,
    features: Sequence[str],
    to: Engine,
    *,
    name: str,
    normalisation: Literal["query-minmax", "none"] = "query-minmax",
) -> Exported:
    """A learner's model as `to` takes it.

    Parameters
    ----------
    learner
        What has learned something; `rankloop.standardized` ones take the sizes of features with them.
    features
        Their names in the learner's order, as the engine calls them.
    to
        "elasticsearch", "opensearch", "solr", "onnx" or "json".
    name
        What the model is called there. Engines do not let a model be changed: put a version into it.
    normalisation
        What you do to features before the learner sees them; of a standardized one it is known.

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
        raise InvalidParameter(f"a name stands twice in {', '.join(features)}; engines take each once")
    how: Normalisation = "stream" if isinstance(learner, StandardizedLearner) else normalisation
    if to == "onnx":
        return onnx_graph(learner, features, how, name)
    model = linear_of(learner, features, how, name)
    if to == "json":
        return plain(model)
    if to == "solr":
        return solr(model)
    return elasticsearch(model, to)
