"""A ranker's model as search engines and runtimes take it, from what the store has of it."""

from __future__ import annotations

from typing import Literal

from rankloop.core.errors import InvalidParameter
from rankloop.features.declarations import Sent
from rankloop.integrations.export import Engine, Exported, export
from rankloop.service.errors import UnknownVersion
from rankloop.service.offline.replay import State, served_spec
from rankloop.service.ranking import model as models
from rankloop.service.ranking.feature_spec import column_names, declarations, is_sparse, listed, width_of
from rankloop.service.storage import admin, lineage, states
from rankloop.service.storage.database import Connection, Database

Wanted = int | Literal["live"] | None


def export_ranker(database: Database, row: admin.Ranker, to: Engine, version: Wanted = None) -> Exported:
    """A version, or what is learned, as the last snapshot has it ("live"); None: what is served.

    The model is called after the ranker and the version: `shop-v3`, `shop-live-1200` after as many outcomes.
    """
    found, changes = database.read(lambda c: (_state(c, row, version), lineage.changes(c, row.name)))
    spec = served_spec(row.spec, found)
    learner = models.load_learner(spec, found.state, f"{found.name} of ranker {row.name!r}", changes)
    normalisation: Literal["query-minmax", "none"] = "none" if spec.normalisation == "none" else "query-minmax"
    if is_sparse(spec) and (spec.width or to != "json"):
        rather = "which have no names" if spec.width else "more than an engine takes; export it to json"
        raise InvalidParameter(
            f"ranker {row.name!r} has {width_of(spec):,} hashed columns, {rather}. For an engine, make a ranker of "
            "features that the engine computes"
        )
    names = list(column_names(spec))
    computed = [one.name for one in declarations(spec) if not isinstance(one, Sent)]
    name = f"{row.name}-{found.name}"
    made = export(learner, names, to, name=name, normalisation=normalisation)
    if computed:
        made.notes.append(f"computed here from the catalog and the request, there by you: {listed(computed, 12)}")
    return made


def _state(connection: Connection, row: admin.Ranker, version: Wanted) -> State:
    wanted = row.serving if version is None else version
    if wanted is None or wanted == "live":
        snapshot = states.snapshot(connection, row.name)
        assert snapshot is not None  # every ranker has one from the start
        return State(f"live-{snapshot.seq}", snapshot.seq, snapshot.state)
    found = states.version_state(connection, row.name, wanted)
    if found is None:
        has = ", ".join(str(one.version) for one in states.versions(connection, row.name)) or "none"
        raise UnknownVersion(f"ranker {row.name!r} has no version {wanted}; it has {has}")
    return State(f"v{wanted}", *found)
