"""Click models: how users act on a list. `MODELS` has them by name, `load` reads a fitted one."""

from rankloop.clicks.cascade import Cascade
from rankloop.clicks.ccm import ClickChain
from rankloop.clicks.ctr import DocumentRate, GlobalRate, RankRate
from rankloop.clicks.dbn import DynamicBayesian
from rankloop.clicks.dcm import DependentClick
from rankloop.clicks.files import MODELS, dumps, load, loads, save
from rankloop.clicks.log import Page, SessionLog
from rankloop.clicks.model import ClickModel
from rankloop.clicks.pairs import Pairs
from rankloop.clicks.pbm import PositionBased
from rankloop.clicks.sdbn import SimplifiedDBN
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
