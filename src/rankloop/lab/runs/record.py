"""What goes into a run and what comes out of it: the protocol of trials, and their records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from rankloop.core.errors import RankloopError
from rankloop.core.types import Array

Progress = Callable[[int], None]  # called with the number of rounds done


class Runnable(Protocol):
    """A run as data. `learner`, `params`, `user`, `world`, `models`, where there are any, enter its provenance."""

    @property
    def id(self) -> str:
        """Readable, and different for different runs."""

    @property
    def data(self) -> str:
        """The data set, or what else runs share."""

    @property
    def rounds(self) -> int:
        """How long it is."""

    def run(self, on_progress: Progress | None = None) -> Record:
        """Carry it out."""


@dataclass(frozen=True)
class Record:
    """What a run gave: a value of each measure at each checkpoint, and how long it took."""

    trial: Any
    at: Array  # (c,) rounds done at each checkpoint
    measures: dict[str, Array]  # (c,) each: "online.cndcg", "online.ndcg", "offline.ndcg@10", …
    conventions: dict[str, Any]  # what the numbers mean
    seconds: float
    rounds_per_second: float
    columns: Mapping[str, Any]  # the fields of the trial, as results have them
    ndcg: Array = field(default_factory=lambda: np.zeros(0))  # (rounds,) of each ranking shown, if measured

    def last(self, measure: str) -> float:
        """The value of a measure at the end of the run."""
        return float(self.measures[measure][-1])

    def rows(self) -> list[dict[str, Any]]:
        """A row per checkpoint, the trial's fields repeated: what a Parquet file holds."""
        shared = {"run": self.trial.id, **self.columns}
        shared |= {"seconds": self.seconds, "rounds_per_second": self.rounds_per_second}
        return [
            {**shared, "round": int(t), **{name: float(values[i]) for name, values in self.measures.items()}}
            for i, t in enumerate(self.at)
        ]

    def to_pandas(self) -> Any:
        """The rows as a pandas frame."""
        try:
            pandas: Any = import_module("pandas")
        except ImportError:
            raise RankloopError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        return pandas.DataFrame(self.rows())


def parameters_as_text(params: Mapping[str, Any]) -> str:
    """The parameters of a learner as labels show them.

    >>> parameters_as_text({"alpha": 0.1, "explore": "blocks"})
    'alpha=0.1,explore=blocks'
    """
    return ",".join(f"{name}={value}" for name, value in params.items())


def common_columns(trial: Any) -> dict[str, Any]:
    """The columns that rows of all kinds of trials have."""
    return {
        "learner": trial.learner,
        "label": trial.label,
        "params": json.dumps(dict(trial.params)),
        "rounds": trial.rounds,
        "seed": trial.seed,
    }
