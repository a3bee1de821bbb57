"""rankloop: a ranking that learns from every click.

>>> import numpy as np, rankloop
>>> learner = rankloop.make("pairrank")
>>> rng = np.random.default_rng(0)
>>> candidates = rankloop.Candidates("red shoes", ["a", "b", "c"], [[0.1, 1.0], [0.7, 0.0], [0.2, 0.4]])
>>> shown = learner.rank(candidates, k=2, rng=rng)
>>> learner.learn(shown, rankloop.Feedback.clicked(shown, [shown.items[1]]), rng)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankloop.learner import Learner, clone, params
    from rankloop.registry import LEARNERS, dumps, load, loads, make, save
    from rankloop.streams import Streams
    from rankloop.types import Candidates, Feedback, Impression

__version__ = "0.1.0"

# Names and where they live; imported when first used, so that `rankloop --help` need not wait for numpy and numba.
_HOMES = {
    "Candidates": "types",
    "Feedback": "types",
    "Impression": "types",
    "LEARNERS": "registry",
    "Learner": "learner",
    "Streams": "streams",
    "clone": "learner",
    "dumps": "registry",
    "load": "registry",
    "loads": "registry",
    "make": "registry",
    "params": "learner",
    "save": "registry",
}

__all__ = [
    "LEARNERS",
    "Candidates",
    "Feedback",
    "Impression",
    "Learner",
    "Streams",
    "clone",
    "dumps",
    "load",
    "loads",
    "make",
    "params",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankloop' has no attribute {name!r}")
    return getattr(import_module(f"rankloop.{_HOMES[name]}"), name)
