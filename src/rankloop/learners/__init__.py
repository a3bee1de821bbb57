"""The learners, one folder per family; every class can be imported from here.

>>> from rankloop.learners import PairRank
>>> PairRank(alpha=0.1).alpha
0.1
"""

from typing import TYPE_CHECKING

__all__ = [
    "DBGD",
    "MGD",
    "NSGD",
    "PDGD",
    "Adaptive",
    "BaseOrder",
    "BatchRank",
    "BubbleRank",
    "CascadeKLUCB",
    "CascadeUCB1",
    "EpsilonGreedy",
    "FTPLFull",
    "Greedy",
    "Hybrid",
    "LambdaRankLabels",
    "ListNetFull",
    "Meta",
    "NeuralDBGD",
    "NeuralPDGD",
    "OLLambdaRank",
    "OLRankNet",
    "OLRankNetPaper",
    "OfflineRankNet",
    "PairRank",
    "PairRankPaper",
    "PerturbedEnsemble",
    "RTopK",
    "RTopKItems",
    "RandomOrder",
    "SquareCB",
    "TopRank",
]

if TYPE_CHECKING:
    from rankloop.learners.bandits.batchrank import BatchRank
    from rankloop.learners.bandits.bubblerank import BubbleRank
    from rankloop.learners.bandits.cascade_klucb import CascadeKLUCB
    from rankloop.learners.bandits.cascade_ucb1 import CascadeUCB1
    from rankloop.learners.bandits.squarecb import SquareCB
    from rankloop.learners.bandits.toprank import TopRank
    from rankloop.learners.baselines.base_order import BaseOrder
    from rankloop.learners.baselines.random_order import RandomOrder
    from rankloop.learners.dueling.dbgd import DBGD
    from rankloop.learners.dueling.meta import Meta
    from rankloop.learners.dueling.mgd import MGD
    from rankloop.learners.dueling.nsgd import NSGD
    from rankloop.learners.grades.ftpl_full import FTPLFull
    from rankloop.learners.grades.listnet_full import ListNetFull
    from rankloop.learners.grades.rtopk import RTopK
    from rankloop.learners.grades.rtopk_items import RTopKItems
    from rankloop.learners.neural.lambdarank_labels import LambdaRankLabels
    from rankloop.learners.neural.neural_dbgd import NeuralDBGD
    from rankloop.learners.neural.neural_pdgd import NeuralPDGD
    from rankloop.learners.neural.ollambdarank import OLLambdaRank
    from rankloop.learners.neural.olranknet import OLRankNet
    from rankloop.learners.neural.olranknet_paper import OLRankNetPaper
    from rankloop.learners.neural.perturbed_ensemble import PerturbedEnsemble
    from rankloop.learners.pairwise.adaptive import Adaptive
    from rankloop.learners.pairwise.epsilon_greedy import EpsilonGreedy
    from rankloop.learners.pairwise.greedy import Greedy
    from rankloop.learners.pairwise.hybrid import Hybrid
    from rankloop.learners.pairwise.offline_ranknet import OfflineRankNet
    from rankloop.learners.pairwise.pairrank import PairRank
    from rankloop.learners.pairwise.pairrank_paper import PairRankPaper
    from rankloop.learners.pairwise.pdgd import PDGD
else:  # imported when first used; type checkers see the names above only, so that they report misspelled ones

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'rankloop.learners' has no attribute {name!r}")
        from importlib import import_module

        from rankloop.core.registry import LEARNERS

        modules = {cls: module for module, _, cls in (entry.path.partition(":") for entry in LEARNERS.values())}
        return getattr(import_module(modules[name]), name)

    def __dir__():
        return sorted({*globals(), *__all__})
