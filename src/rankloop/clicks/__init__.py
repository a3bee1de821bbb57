"""Click models: simulate, fit and score them; all simulated users. `MODELS` has the models by name."""

from rankloop.clicks.cascade import Cascade
from rankloop.clicks.ccm import ClickChain
from rankloop.clicks.ctr import DocumentRate, GlobalRate, RankRate
from rankloop.clicks.dbn import DynamicBayesian, SimplifiedDBN
from rankloop.clicks.dcm import DependentClick
from rankloop.clicks.files import MODELS, dumps, load, loads, save
from rankloop.clicks.log import Page, Pairs, SessionLog
from rankloop.clicks.model import ClickModel
from rankloop.clicks.pbm import PositionBased
from rankloop.clicks.ubm import UserBrowsing

__all__ = [
    "MODELS",
    "Cascade",
    "ClickChain",
    "ClickModel",
    "DependentClick",
    "DocumentRate",
    "DynamicBayesian",
    "GlobalRate",
    "Page",
    "Pairs",
    "PositionBased",
    "RankRate",
    "SessionLog",
    "SimplifiedDBN",
    "UserBrowsing",
    "dumps",
    "load",
    "loads",
    "save",
]
