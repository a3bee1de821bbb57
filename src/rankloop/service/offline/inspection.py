"""What a ranker has learned, from a store or from a file with a saved learner. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from rankloop.core import codec, registry
from rankloop.core.capabilities import LinearScores
from rankloop.core.learner import Learner, params
from rankloop.core.scaling import unwrapped
from rankloop.core.types import Array
from rankloop.service.offline.log_source import find_ranker
from rankloop.service.ranking import model as models
from rankloop.service.ranking import movement
from rankloop.service.ranking.feature_spec import column_names
from rankloop.service.storage import impressions, leases, lineage, outcomes, rankers, snapshots
from rankloop.service.storage.database import Connection, Database

MOST_WEIGHTS = 5_000  # the largest: of a hundred thousand hashed columns nobody reads all


@dataclass
class Weight:
    """What a linear learner has learned of a feature."""

    feature: str
    weight: float
    confidence: float | None  # half the width of its interval, if the learner has one


@dataclass
class Learned:
    """The parameters, the arrays and the weights of a learner."""

    learner: str
    parameters: dict[str, Any]
    state: dict[str, str]  # type and shape of each array
    weights: list[Weight]


@dataclass
class Inspection:
    """A ranker as it is in the store."""

    ranker: str
    spec: dict[str, Any]
    serving: str
    learning: bool
    created: float
    closed_impressions: int
    learned_impressions: int  # at the last snapshot
    unlearned_impressions: int
    open_impressions: int
    learner_process: str | None
    versions: list[dict[str, Any]]
    learner: Learned
    movement: dict[str, Any]  # as GET …/movement returns it, of the snapshot


def look_inside(learner: Learner, names: Sequence[str] = ()) -> Learned:
    """The state of a learner; `names` are those of its features, if known."""
    state = {name: f"{array.dtype} {' x '.join(map(str, array.shape))}" for name, array in learner.state().items()}
    weights, inner = [], unwrapped(learner)
    theta = models.weights_of(learner)
    if isinstance(theta, np.ndarray) and theta.ndim == 1:
        widths: Array | None = learner.half_widths() if isinstance(learner, LinearScores) else None
        largest = np.sort(np.argsort(-np.abs(theta), kind="stable")[:MOST_WEIGHTS])
        for j, weight in zip(largest.tolist(), theta[largest].tolist(), strict=True):
            width = None if widths is None or widths.size != theta.size else float(widths[j])
            base = j == theta.size - 1 and params(inner).get("init") == "base"
            name = models.BASELINE if base else names[j] if j < len(names) else f"feature {j + 1}"
            weights.append(Weight(name, weight, width))
    return Learned(registry.name_of(inner), params(inner), state, weights)


def inspect_file(path: str) -> Learned:
    """A learner that `rankloop.save` or `rankloop replay --out` wrote."""
    return look_inside(registry.load(path))


def inspect(database: Database, name: str) -> Inspection:
    """A ranker of a store."""
    row = find_ranker(database, name)
    return database.read(lambda connection: _read(connection, row))


def _read(connection: Connection, row: rankers.Ranker) -> Inspection:
    name = row.name
    closed, snapshot = outcomes.log_offsets(connection).get(name, 0), snapshots.snapshot(connection, name)
    assert snapshot is not None  # every ranker has one from the start
    at, what = (snapshot.generation, snapshot.seq), f"the snapshot of {name!r}"
    model = models.load_model(row.spec, *at, snapshot.state, what, changes=lineage.spec_changes(connection, name))
    return Inspection(
        ranker=name,
        spec=msgspec.to_builtins(row.spec),
        serving="live" if row.serving is None else f"v{row.serving}",
        learning=row.learning,
        created=row.created,
        closed_impressions=closed,
        learned_impressions=snapshot.seq,
        unlearned_impressions=closed - snapshot.seq,
        open_impressions=impressions.open_counts(connection)[name],
        learner_process=leases.list_leases(connection).get(name, (None, 0))[0],
        versions=[
            {"version": one.version, "learned_impressions": one.seq, "created": one.created, "note": one.note}
            for one in snapshots.versions(connection, name)
        ],
        learner=look_inside(model.learner, column_names(row.spec)),
        movement=_movement(connection, row, model),
    )


def _movement(connection: Connection, row: rankers.Ranker, model: models.PublishedModel) -> dict[str, Any]:
    bodies = impressions.latest_bodies(connection, row.name, row.epoch, movement.LATEST)
    found: dict[str, Any] = msgspec.to_builtins(movement.movement(row.name, model, bodies, model))
    return found


def is_learner_file(path: str) -> bool:
    """Whether a file begins as a saved learner does."""
    try:
        with open(path, "rb") as file:
            return file.read(len(codec.MAGIC)) == codec.MAGIC
    except OSError:
        return False
