"""rankloop: a ranking that learns from every click.

>>> import numpy as np, rankloop
>>> learner = rankloop.make("pairrank")
>>> rng = np.random.default_rng(0)
>>> candidates = rankloop.Candidates("red shoes", ["a", "b", "c"], [[0.1, 1.0], [0.7, 0.0], [0.2, 0.4]])
>>> shown = learner.rank(candidates, k=2, rng=rng)
>>> learner.learn(shown, rankloop.Feedback.clicked(shown, [shown.items[1]]), rng)
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankloop.core.batch import learn_many, rank_many, score
    from rankloop.core.errors import RankloopError, RankloopWarning
    from rankloop.core.learner import Learner, clone, params
    from rankloop.core.registry import LEARNERS, dumps, load, loads, make, save
    from rankloop.core.rng import Rng
    from rankloop.core.scaling import scaled, standardized
    from rankloop.core.types import Candidates, Feedback, Impression
    from rankloop.logs.warm_start import warm

__version__ = "0.1.0"

# Names and where they live; imported when first used, so that `rankloop --help` need not wait for numpy and numba.
_HOMES = {
    "Candidates": "core.types",
    "Feedback": "core.types",
    "Impression": "core.types",
    "LEARNERS": "core.registry",
    "Learner": "core.learner",
    "RankloopError": "core.errors",
    "RankloopWarning": "core.errors",
    "SparseRows": "core.types",
    "Rng": "core.rng",
    "clone": "core.learner",
    "dumps": "core.registry",
    "learn_many": "core.batch",
    "load": "core.registry",
    "loads": "core.registry",
    "make": "core.registry",
    "params": "core.learner",
    "rank_many": "core.batch",
    "save": "core.registry",
    "scaled": "core.scaling",
    "score": "core.batch",
    "standardized": "core.scaling",
    "warm": "logs.warm_start",
}
__all__ = [
    "LEARNERS",
    "Candidates",
    "Feedback",
    "Impression",
    "Learner",
    "RankloopError",
    "RankloopWarning",
    "Rng",
    "SparseRows",
    "clone",
    "dumps",
    "learn_many",
    "load",
    "loads",
    "make",
    "params",
    "rank_many",
    "save",
    "scaled",
    "score",
    "standardized",
    "warm",
]


def _rooms() -> list[str]:
    """The modules and packages that can be reached as attributes, without an import of their own."""
    return [found.name for found in iter_modules(__path__) if not found.name.startswith("_")]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"rankloop.{_HOMES[name]}"), name)
    if not name.startswith("_") and name in _rooms():
        return import_module(f"rankloop.{name}")
    raise AttributeError(f"module 'rankloop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_rooms()})
