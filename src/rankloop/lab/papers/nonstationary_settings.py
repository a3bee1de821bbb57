"""Who takes part in the experiment on users who change, and how large it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

DBGD, MGD, NSGD, PDGD = "DBGD", "MGD", "NSGD-DSP", "PDGD"  # as Table 2 calls them
DM2L, M3L, NM2L, PM2L = "DM²L", "M³L", "NM²L", "PM²L"
PAIRS = {DBGD: DM2L, MGD: M3L, NSGD: NM2L, PDGD: PM2L}  # base -> the meta learner over it; PM²L is not in the paper
WORLD = "swap?probability=0.3"  # section 6.1
GAMMA = 0.995  # section 6.1
USERS = ("perfect", "navigational", "informational")
EVERY = 500  # rounds between two changes of taste in the second part
RATES = (0.01, 0.05, 0.2, 1.0)  # DBGD's in the second part: the usual one, and what DM²L's experts have


class Contender(NamedTuple):
    """A learner under the name that the paper gives it."""

    name: str
    learner: str
    meta: bool  # is told how many rounds there will be

    def params(self, rounds: int) -> dict[str, Any]:
        """Defaults: of a base learner what its paper suggests; steps of a meta learner follow from the horizon."""
        return {"horizon": rounds} if self.meta else {}


CONTENDERS = (
    Contender(DBGD, "dbgd", False),
    Contender(DM2L, "dm2l", True),
    Contender(MGD, "mgd", False),
    Contender(M3L, "m3l", True),
    Contender(NSGD, "nsgd", False),
    Contender(NM2L, "nm2l", True),
    Contender(PDGD, "pdgd", False),
    Contender(PM2L, "pm2l", True),
)


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    data: tuple[str, ...]
    users: tuple[str, ...]
    rounds: int
    seeds: int
    tracking_data: tuple[str, ...]  # of the second part, in which tastes change every `EVERY` rounds
    tracking_rounds: int
    tracking_seeds: int


_FEW = ("synthetic:mq2007?queries=300&vali=60&test=60", "synthetic:mslr?queries=200&vali=60&test=60&docs=60")
# held-out NDCG is not looked at, so a few test queries will do: the train queries are the same with any number of them
FULL = Scale(
    tuple(f"synthetic:{name}?vali=10&test=10" for name in ("np2003", "mq2007", "mq2008", "mslr", "yahoo")),
    USERS,
    rounds=1000,
    seeds=10,
    tracking_data=_FEW,
    tracking_rounds=2000,
    tracking_seeds=10,
)
QUICK = Scale(
    _FEW,
    ("perfect", "informational"),
    rounds=300,
    seeds=2,
    tracking_data=_FEW,
    tracking_rounds=2000,
    tracking_seeds=2,
)
