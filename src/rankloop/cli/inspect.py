"""`rankloop inspect`: what a ranker or a saved learner has learned."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cyclopts import App

from rankloop.cli import _out
from rankloop.cli._store import Json, needs_extra, utc

if TYPE_CHECKING:
    from rankloop.service.offline.inspection import Inspection, Learned

MOST = 25  # weights and versions that are shown; --json has all


def add_to(app: App) -> None:
    """Register the command."""
    app.command(inspect)


def inspect(where: str = "rankloop.db", ranker: str | None = None, /, *, json: Json = False) -> None:
    """Show what a ranker has learned: parameters, weights, versions, distance from the baseline ranking.

    Of a store (a file or a postgresql:// URL), or of a file with a saved learner. Without a ranker, the rankers of the
    store are listed. The service may run; its page shows how clicks and exploration develop.

    Example: rankloop inspect rankloop.db shop

    Example: rankloop inspect v3.rankloop

    Parameters
    ----------
    where
        The store, or a file that `rankloop.save` or `rankloop replay --out` wrote.
    ranker
        Its name in the store.
    """
    with needs_extra("service"):
        from rankloop.service.offline import inspection
        from rankloop.service.offline.replay import open_store
        from rankloop.service.storage import rankers as stored_rankers

    if inspection.is_learner_file(where):
        learned = inspection.inspect_file(where)
        if json:
            _out.print_json(asdict(learned))
        else:
            print(f"{where}: {learned.learner}")
            _print_learned(learned)
        return
    with open_store(where) as database:
        if ranker is not None:
            found = inspection.inspect(database, ranker)
            if json:
                _out.print_json(asdict(found))
            else:
                _print_ranker(found)
            return
        rankers = database.read(stored_rankers.list_rankers)
    if json:
        _out.print_json([one.name for one in rankers])
    else:
        rows = [[one.name, one.spec.learner, one.spec.exposure] for one in rankers]
        _out.print_table(f"Rankers of {where}", ["name", "learner", "exposure"], rows, numbers_from=9)


def _print_ranker(found: Inspection) -> None:
    spec = found.spec
    facts = {
        "learner": found.learner.learner,
        "exposure": f"{spec['exposure']}, {spec['k']} shown",
        "serving": found.serving,
        "learning": "yes" if found.learning else "paused",
        "impressions": f"{found.closed_impressions:,} closed, {found.learned_impressions:,} learned (last snapshot)",
        "open impressions": f"{found.open_impressions:,}",
        "learner process": found.learner_process or "none",
        "created": utc(found.created, "%F %H:%M UTC"),
        **_movement(found.movement),
    }
    _out.print_table(found.ranker, ["", ""], [[name, value] for name, value in facts.items()], numbers_from=2)
    _print_learned(found.learner)
    if found.versions:
        rows = [
            [f"v{one['version']}", f"{one['learned_impressions']:,}", utc(one["created"]), one["note"]]
            for one in found.versions
        ]
        _out.print_table("Versions", ["", "learned impressions", "kept (UTC)", "note"], rows[:MOST], numbers_from=9)


def _movement(found: dict[str, Any]) -> dict[str, str]:
    """The distance from the baseline ranking, the memory and the drift of a learner, as far as it reports them."""
    facts = {}
    if found["lists"]:
        pairs = "" if found["agreement"] is None else f"; {found['agreement']:.0%} of pairs in the same order"
        facts[f"distance from the baseline, last {found['lists']:,} impressions"] = (
            f"{found['displacement']:.1f} places{pairs}; same first item in {found['same_first']:.0%}; "
            f"{found['brought_up']:.0%} of items brought up from below"
        )
    if (memory := found["memory"]) is not None:
        share = "" if memory["share"] is None else f", {memory['share']:.0%} of these impressions"
        facts["queries in memory"] = f"{memory['queries']:,}{share}"
    if (drift := found["drift"]) is not None:
        when = f", the last at impression {drift['latest'][-1]:,} of {drift['lists']:,}" if drift["latest"] else ""
        since = f"; the present model took over at impression {drift['since']:,}" if drift["since"] else ""
        facts["drift alarms"] = f"{drift['alarms']:,}{when}{since}"
    return facts


def _print_learned(learned: Learned) -> None:
    if learned.parameters:
        rows = [[name, str(value)] for name, value in learned.parameters.items()]
        _out.print_table(f"Parameters of {learned.learner}", ["", ""], rows, numbers_from=2)
    if learned.state:
        rows = [[name, shape] for name, shape in learned.state.items()]
        _out.print_table("State", ["", ""], rows, numbers_from=2)
    if learned.weights:
        largest = sorted(learned.weights, key=lambda one: -abs(one.weight))[:MOST]
        rows = [[one.feature, f"{one.weight:+.4f}", _confidence(one.weight, one.confidence)] for one in largest]
        left = len(learned.weights) - len(largest)
        title = "Weights, the largest first" + (f"; {left:,} more with --json" if left else "")
        _out.print_table(title, ["feature", "weight", "± confidence"], rows)


def _confidence(weight: float, confidence: float | None) -> str:
    if confidence is None:
        return ""
    return f"± {confidence:.4f}" + ("" if abs(weight) > confidence else " (uncertain)")
