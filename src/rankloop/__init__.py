"""rankloop: a ranking that learns from every click.

>>> import numpy as np, rankloop
>>> learner = rankloop.make("pairrank")
>>> rng = np.random.default_rng(0)
>>> candidates = rankloop.Candidates("red shoes", ["a", "b", "c"], [[0.1, 1.0], [0.7, 0.0], [0.2, 0.4]])
>>> shown = learner.rank(candidates, k=2, rng=rng)
>>> learner.learn(shown, rankloop.Feedback.clicked(shown, [shown.items[1]]), rng)
"""

from typing import TYPE_CHECKING

from rankloop import learners

__version__ = "0.1.0"

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
    "warm_start",
]
__all__ += learners.__all__

if TYPE_CHECKING:
    from rankloop.core.batch import learn_many, rank_many, score
    from rankloop.core.errors import RankloopError, RankloopWarning
    from rankloop.core.learner import Learner, clone, params
    from rankloop.core.registry import LEARNERS, dumps, load, loads, make, save
    from rankloop.core.rng import Rng
    from rankloop.core.scaling import scaled, standardized
    from rankloop.core.types import Candidates, Feedback, Impression, SparseRows
    from rankloop.learners import *  # noqa: F403
    from rankloop.logs.warm_start import warm_start
else:  # imported when first used, without numpy and numba until then; hidden from type checkers, see rankloop.learners
    _NAMES = {
        "core.batch": ("learn_many", "rank_many", "score"),
        "core.errors": ("RankloopError", "RankloopWarning"),
        "core.learner": ("Learner", "clone", "params"),
        "core.registry": ("LEARNERS", "dumps", "load", "loads", "make", "save"),
        "core.rng": ("Rng",),
        "core.scaling": ("scaled", "standardized"),
        "core.types": ("Candidates", "Feedback", "Impression", "SparseRows"),
        "learners": learners.__all__,
        "logs.warm_start": ("warm_start",),
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'rankloop' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"rankloop.{_MODULES[name]}"), name)

    def __dir__():
        return sorted({*globals(), *__all__})
