"""What of a learner can leave it: weights by name, the sizes of features, and what is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rankloop.core import scaling
from rankloop.core.capabilities import Remembers
from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner, params
from rankloop.core.scaling import StandardizedLearner, unwrapped
from rankloop.core.types import Array

Normalisation = Literal["query-minmax", "stream", "none"]


class Exported(NamedTuple):
    """A model as another program takes it."""

    name: str  # with the version in it
    body: bytes
    media: str  # its type, as HTTP says it
    notes: list[str]  # what is otherwise there than here


class Linear(NamedTuple):
    """A weighted sum of features, and what is done to them before."""

    name: str
    features: list[str]
    weights: Array  # (d,)
    normalisation: Normalisation
    middle: Array  # (d,) of "stream": what is taken off a feature
    spread: Array  # (d,) and what the rest is divided by; 0: the feature counts nothing
    base: float | None  # the weight of -log(1 + place in the caller's order); None: there is none
    notes: list[str]


def linear_of(learner: Learner, names: Sequence[str], normalisation: Normalisation, name: str) -> Linear:
    """The parts of a learner that scores by a weighted sum.

    >>> from rankloop import make
    >>> from rankloop.core.types import Candidates, Feedback
    >>> learner, rng = make("pairrank"), np.random.default_rng(0)
    >>> shown = learner.rank(Candidates("q", [1, 2], [[1.0, 0.0], [0.0, 1.0]]), 2, rng)
    >>> learner.learn(shown, Feedback.clicked(shown, [2]), rng)
    >>> found = linear_of(learner, ["bm25", "fresh"], "none", "shop-v1")
    >>> found.features, found.weights[1] > 0, found.base
    (['bm25', 'fresh'], np.True_, None)
    """
    inner = unwrapped(learner)
    weights = weights_of(inner, names)
    base, notes = base_of(inner, weights, names), []
    if isinstance(inner, Remembers):
        notes.append(
            "what is remembered of single queries stays here: the weights that hold for all queries are exported, and "
            "order a query that never came as the ranker does"
        )
    middle, spread = sizes_of(learner, len(names))
    still = [one for one, size in zip(names, spread.tolist(), strict=True) if size == 0.0]
    if still:
        notes.append(f"never differed within a list, so that nothing is known of it, weight 0: {', '.join(still)}")
    notes += young_note(learner)
    own = np.where(spread > 0.0, weights[: len(names)], 0.0)
    return Linear(name, list(names), own, normalisation, middle, spread, base, notes)


def weights_of(inner: Learner, names: Sequence[str]) -> Array:
    """(d,) weights of a linear learner, or (d + 1,) with that of the base order; refused where there are none."""
    kind, theta = type(inner).__name__, getattr(inner, "theta_", None)
    if not inner.contextual:
        raise InvalidParameter(
            f"{kind} ranks by ids and knows queries by their fingerprints only: there are no weights, and it cannot "
            "name what it remembers; ask the service for lists, or export a ranker that ranks by features"
        )
    if theta is None:
        raise InvalidParameter(f"{kind} does not score by a weighted sum; a network leaves as ONNX: --to onnx")
    if theta.size == 0:
        raise InvalidParameter(f"{kind} has learned nothing yet: every weight would be 0; come back after some clicks")
    if theta.size not in (len(names), len(names) + 1):
        raise InvalidParameter(f"there are {len(names)} names for {theta.size} weights; give the learner's features")
    weights: Array = theta
    return weights


def base_of(inner: Learner, weights: Array, names: Sequence[str]) -> float | None:
    """The weight of the caller's order, where the learner has one."""
    if weights.size == len(names):
        return None
    assert params(inner).get("init") == "base"
    return float(weights[-1])


def sizes_of(learner: Learner, width: int) -> tuple[Array, Array]:
    """(d,) middle and (d,) spread of what stands before a learner; 0 and 1 if nothing does."""
    if isinstance(learner, StandardizedLearner):
        return learner.scaler.middle, learner.scaler.spread
    return np.zeros(width), np.ones(width)


def young_note(learner: Learner) -> list[str]:
    """What to know of a model whose sizes are of a few lists only."""
    if not isinstance(learner, StandardizedLearner) or not learner.scaler.young:
        return []
    few, bound = learner.scaler.lists, scaling.BOUND
    return [f"sizes are known of {few} lists only: here values are cut to ±{bound:.2g} until there are more"]


def in_engine(model: Linear, engine: str) -> Linear:
    """The model as far as a search engine can follow; refused, with the remedy, where it cannot."""
    if model.normalisation == "query-minmax":
        raise InvalidParameter(
            f"the features of {model.name} are scaled within each request (query-minmax), and {engine} scores one "
            'document at a time; export a ranker whose spec has "normalisation": "stream", which is the default, or a '
            "file of `rankloop warm --normalisation stream`; --to onnx and --to json take this one"
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
        raise InvalidParameter(f"a weight of {model.name} is {largest:g}; {engine} counts in float32")
    return model._replace(base=None, notes=[*notes, f"{engine} counts in float32: scores agree to about 1e-6 of them"])


def single(number: float) -> float:
    """A number as float32 has it, in the shortest digits that say so: what the engine will count with.

    >>> single(0.1234567890123)
    0.12345679
    """
    return float(str(np.float32(number)))


def jsonable(numbers: Array) -> list[Any]:
    """Numbers as JSON writes them."""
    return [float(value) for value in numbers]
