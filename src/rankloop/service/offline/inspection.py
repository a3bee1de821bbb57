"""A look at a ranker: what it has learned, how it stands, and how its lists fared. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from rankloop.core import codec, registry
from rankloop.core.capabilities import Confident
from rankloop.core.learner import Learner, params
from rankloop.core.scaling import unwrapped
from rankloop.core.types import Array
from rankloop.service.offline.past import find_ranker
from rankloop.service.ranking import model as models
from rankloop.service.ranking import movement
from rankloop.service.ranking.exposure import explored_positions
from rankloop.service.ranking.feature_spec import column_names
from rankloop.service.storage import admin, lineage, log, shown, states
from rankloop.service.storage.database import Connection, Database
from rankloop.wire.calls import RankAnswer

BUCKETS = 40  # points of the curves
MOST_WEIGHTS = 5_000  # that are told, the largest: of a hundred thousand hashed columns nobody reads all
BATCH = 5000


@dataclass
class Numbers:
    """One array of a learner's state."""

    name: str
    shape: list[int]
    dtype: str
    least: float | None
    mean: float | None
    largest: float | None


@dataclass
class Weight:
    """What a linear learner has learned of a feature."""

    feature: str
    weight: float
    confidence: float | None  # half the width of its interval, if the learner tells


@dataclass
class Learned:
    """A learner, from the inside."""

    learner: str
    parameters: dict[str, Any]
    state: list[Numbers]
    weights: list[Weight]


@dataclass
class Curves:
    """How lists fared, in equal parts of the outcomes first … first + lists - 1."""

    first: int
    lists: int
    clicks: list[float] = field(default_factory=list)  # a list
    reciprocal_rank: list[float] = field(default_factory=list)  # of the first click, 0 without one
    explored: list[float | None] = field(default_factory=list)  # share of positions with an item out of score order
    fallbacks: list[float] = field(default_factory=list)  # share of lists that were not the learner's
    by_position: list[float] = field(default_factory=list)  # clicks a display, from the top


@dataclass
class Inspection:
    """A ranker as the store has it."""

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
    movement: dict[str, Any]  # as GET …/movement tells it, of the snapshot
    curves: Curves


def look_inside(learner: Learner, names: Sequence[str] = ()) -> Learned:
    """The state of a learner; `names` of its features, as far as they are known."""
    state = [
        Numbers(
            name,
            list(array.shape),
            str(array.dtype),
            *((float(f(array)) for f in (np.min, np.mean, np.max)) if _is_number(array) else (None, None, None)),
        )
        for name, array in learner.state().items()
    ]
    weights = []
    theta = models.weights_of(learner)
    if isinstance(theta, np.ndarray) and theta.ndim == 1:
        sure: Array | None = learner.half_widths() if isinstance(learner, Confident) else None
        largest = np.sort(np.argsort(-np.abs(theta), kind="stable")[:MOST_WEIGHTS])  # of wide features most are 0
        for j, weight in zip(largest.tolist(), theta[largest].tolist(), strict=True):
            known = None if sure is None or sure.size != theta.size else float(sure[j])
            base = j == theta.size - 1 and params(unwrapped(learner)).get("init") == "base"
            name = models.BASELINE if base else names[j] if j < len(names) else f"feature {j + 1}"
            weights.append(Weight(name, weight, known))
    inner = unwrapped(learner)
    return Learned(registry.name_of(inner), params(inner), state, weights)


def _is_number(array: Array) -> bool:
    return array.size > 0 and array.dtype.kind in "biuf"


def inspect_file(path: str) -> Learned:
    """A learner that `rankloop.save` or `rankloop replay --out` wrote."""
    return look_inside(registry.load(path))


def inspect(database: Database, name: str, last: int = 20_000) -> Inspection:
    """A ranker of a store; curves are over its `last` outcomes (0: all)."""
    row = find_ranker(database, name)
    return database.read(lambda connection: _read(connection, row, last))


def _read(connection: Connection, row: admin.Ranker, last: int) -> Inspection:
    name = row.name
    closed, snapshot = log.heads(connection).get(name, 0), states.snapshot(connection, name)
    assert snapshot is not None  # every ranker has one from the start
    at, what = (snapshot.generation, snapshot.seq), f"the snapshot of {name!r}"
    model = models.load_model(row.spec, *at, snapshot.state, what, changes=lineage.changes(connection, name))
    return Inspection(
        ranker=name,
        spec=msgspec.to_builtins(row.spec),
        serving="live" if row.serving is None else f"v{row.serving}",
        learning=row.learning,
        created=row.created,
        closed_impressions=closed,
        learned_impressions=snapshot.seq,
        unlearned_impressions=closed - snapshot.seq,
        open_impressions=log.open_counts(connection)[name],
        learner_process=admin.leases(connection).get(name, (None, 0))[0],
        versions=[
            {"version": one.version, "learned_impressions": one.seq, "created": one.created, "note": one.note}
            for one in states.versions(connection, name)
        ],
        learner=look_inside(model.learner, column_names(row.spec)),
        movement=_movement(connection, row, model),
        curves=_curves(connection, name, max(0, closed - last) if last else 0, closed),
    )


def _movement(connection: Connection, row: admin.Ranker, model: models.Model) -> dict[str, Any]:
    bodies = shown.latest_bodies(connection, row.name, row.epoch, movement.LATEST)
    found: dict[str, Any] = msgspec.to_builtins(movement.movement(row.name, model, bodies, model))
    return found


def _curves(connection: Connection, name: str, first: int, end: int) -> Curves:
    sql = f"SELECT seq, feedback, impression_id FROM outcomes WHERE ranker = ? AND seq >= ? ORDER BY seq LIMIT {BATCH}"
    answers = msgspec.json.Decoder(RankAnswer)
    figures: list[list[float]] = []  # clicks, reciprocal rank, explored, positions with a score, fallback
    shown, clicked = np.zeros(1000), np.zeros(1000)
    at = first
    while rows := [one for one in connection.rows(sql, name, at) if one[0] < end]:
        lists = log.by_id(connection, "answer", [one[2] for one in rows])
        for _, feedback, answer in ((*one[:2], lists[one[2]][0]) for one in rows if one[2] in lists):
            values = np.array(msgspec.json.decode(feedback)) > 0
            told = answers.decode(answer)
            items = told.items
            hit = np.flatnonzero(values)
            shown[: len(items)] += 1
            clicked[hit] += 1
            scores = [item.score for item in items if item.score is not None]
            moved = explored_positions(np.arange(len(scores)), np.argsort(-np.array(scores), kind="stable"))
            reciprocal = 1.0 / (1 + int(hit[0])) if hit.size else 0.0
            figures.append([hit.size, reciprocal, moved, len(scores), told.fallback])
        at = rows[-1][0] + 1
    if not figures:
        return Curves(first, 0)
    table = np.array(figures, np.float64)
    parts = np.array_split(table, min(BUCKETS, len(table)))
    deepest = int(np.flatnonzero(shown)[-1]) + 1
    return Curves(
        first,
        len(table),
        clicks=[float(part[:, 0].mean()) for part in parts],
        reciprocal_rank=[float(part[:, 1].mean()) for part in parts],
        explored=[float(part[:, 2].sum() / part[:, 3].sum()) if part[:, 3].any() else None for part in parts],
        fallbacks=[float(part[:, 4].mean()) for part in parts],
        by_position=(clicked[:deepest] / shown[:deepest]).tolist(),
    )


def is_learner_file(path: str) -> bool:
    """Whether a file begins as a saved learner does."""
    try:
        with open(path, "rb") as file:
            return file.read(len(codec.MAGIC)) == codec.MAGIC
    except OSError:
        return False
