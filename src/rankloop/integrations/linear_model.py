"""The linear model of a learner for export: weights by feature name, normalization, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from rankloop.core import scaling
from rankloop.core.capabilities import report_of
from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner, params
from rankloop.core.scaling import StandardizedLearner, unwrapped
from rankloop.core.types import Array

Normalization = Literal["query-minmax", "stream", "none"]


class Exported(NamedTuple):
    """A model in the format of another program."""

    name: str  # with the version
    body: bytes
    media: str  # media type
    notes: list[str]  # differences from the ranker


class LinearModel(NamedTuple):
    """A weighted sum of normalized features."""

    name: str
    features: list[str]
    weights: Array  # (d,)
    normalization: Normalization
    middle: Array  # (d,) of "stream": subtracted from features
    spread: Array  # (d,) divisor; 0: the feature does not count
    base: float | None  # weight of -log(1 + position in the baseline ranking); None: not used
    notes: list[str]


def linear_model(learner: Learner, names: Sequence[str], normalization: Normalization, name: str) -> LinearModel:
    """Return the linear model of a learner that scores by a weighted sum.

    >>> from rankloop import make
    >>> from rankloop.core.types import Candidates, Feedback
    >>> learner, rng = make("pairrank"), np.random.default_rng(0)
    >>> shown = learner.rank(Candidates("q", [1, 2], [[1.0, 0.0], [0.0, 1.0]]), 2, rng)
    >>> learner.learn(shown, Feedback.clicked(shown, [2]), rng)
    >>> found = linear_model(learner, ["bm25", "fresh"], "none", "shop-v1")
    >>> found.features, found.weights[1] > 0, found.base
    (['bm25', 'fresh'], np.True_, None)
    """
    inner = unwrapped(learner)
    weights = weights_of(inner, names)
    base, notes = base_of(inner, weights, names), []
    if report_of(inner).remembered is not None:
        notes.append(
            "the memory of single queries is not exported; the weights order queries that were never seen like the "
            "ranker"
        )
    middle, spread = sizes_of(learner, len(names))
    still = [one for one, size in zip(names, spread.tolist(), strict=True) if size == 0.0]
    if still:
        notes.append(f"features that never varied within a list have weight 0: {', '.join(still)}")
    notes += young_note(learner)
    own = np.where(spread > 0.0, weights[: len(names)], 0.0)
    return LinearModel(name, list(names), own, normalization, middle, spread, base, notes)


def weights_of(inner: Learner, names: Sequence[str]) -> Array:
    """Return (d,) weights of a linear learner, or (d + 1,) with that of the baseline ranking."""
    kind, theta = type(inner).__name__, getattr(inner, "theta_", None)
    if not inner.contextual:
        raise InvalidParameter(
            f"{kind} ranks by ids and has no weights; ask the service for rankings, or export a ranker that ranks by "
            "features"
        )
    if theta is None:
        raise InvalidParameter(f"{kind} does not score by a weighted sum; export a network as ONNX: --to onnx")
    if theta.size == 0:
        raise InvalidParameter(f"{kind} has learned nothing yet; export it after some clicks")
    if theta.size not in (len(names), len(names) + 1):
        raise InvalidParameter(f"there are {len(names)} names for {theta.size} weights; give the learner's features")
    weights: Array = theta
    return weights


def base_of(inner: Learner, weights: Array, names: Sequence[str]) -> float | None:
    """Return the weight of the baseline ranking, if the learner has one."""
    if weights.size == len(names):
        return None
    assert params(inner).get("init") == "base"
    return float(weights[-1])


def sizes_of(learner: Learner, width: int) -> tuple[Array, Array]:
    """Return (d,) mean and (d,) spread of a standardized learner; 0 and 1 for others."""
    if isinstance(learner, StandardizedLearner):
        return learner.scaler.middle, learner.scaler.spread
    return np.zeros(width), np.ones(width)


def young_note(learner: Learner) -> list[str]:
    """Return a note for a model whose scale is estimated from few lists."""
    if not isinstance(learner, StandardizedLearner) or not learner.scaler.young:
        return []
    few, bound = learner.scaler.lists, scaling.BOUND
    return [f"feature sizes are known from {few} lists only, so the ranker still clips values to ±{bound:.2g}"]


def in_engine(model: LinearModel, engine: str) -> LinearModel:
    """Return the model as a search engine can apply it, or raise an error with the remedy."""
    if model.normalization == "query-minmax":
        raise InvalidParameter(
            f"the features of {model.name} are scaled within each request (query-minmax), and {engine} scores one "
            'document at a time; export a ranker whose spec has "normalization": "stream", which is the default, or a '
            "file of `rankloop warm-start --normalization stream`; --to onnx and --to json take this one"
        )
    notes = list(model.notes)
    if model.base is not None:
        notes.append(
            f"{engine} does not apply the baseline ranking, which has weight {model.base:.4g} here (the largest weight "
            f"of a feature is {np.abs(model.weights).max(initial=0.0):.4g}): make the engine's own score a feature, "
            'or create the ranker with the parameter "init": "zero"'
        )
    largest = float(np.abs(model.weights).max(initial=0.0))
    if not largest <= float(np.finfo(np.float32).max):
        raise InvalidParameter(f"a weight of {model.name} is {largest:g}; {engine} computes in float32")
    return model._replace(base=None, notes=[*notes, f"{engine} computes in float32: scores agree to about 1e-6"])


def single(number: float) -> float:
    """Round a number to float32, in the shortest digits.

    >>> single(0.1234567890123)
    0.12345679
    """
    return float(str(np.float32(number)))
