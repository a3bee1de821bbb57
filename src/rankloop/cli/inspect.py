"""`rankloop inspect`: a ranker's state and curves in the terminal."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cyclopts import App

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.service.offline.inspection import Inspection, Learned

MOST = 25  # weights that are shown; --json has all


def add_to(app: App) -> None:
    """Register the command."""
    app.command(inspect)


def inspect(
    where: str = "rankloop.db", ranker: str | None = None, /, *, last: int = 20_000, json: bool = False
) -> None:
    """Show what a ranker has learned and how its lists fared: state, parameters, weights, versions, curves.

    Of a store (a file or a postgresql:// URL, read only: a running service is not touched), or of a file with a saved
    learner. Without a ranker, the rankers of the store are listed.

    Example: rankloop inspect rankloop.db shop

    Example: rankloop inspect v3.rankloop

    Parameters
    ----------
    where
        The store, or a file that `rankloop.save` or `rankloop replay --out` wrote.
    ranker
        Its name in the store.
    last
        Outcomes that the curves are made of, the newest; 0 takes all.
    json
        Print JSON.
    """
    try:
        from rankloop.service.offline import inspection
        from rankloop.service.offline.replay import open_store
        from rankloop.service.storage import admin
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"inspect needs {error.name}; pip install 'rankloop[service]'") from None

    if last < 0:
        raise InvalidParameter(f"last is {last}; it must be at least 0, and 0 takes all")
    if inspection.is_learner_file(where):
        learned = inspection.inspect_file(where)
        if json:
            _out.print_json(asdict(learned))
        else:
            _print_learned(where, learned)
        return
    with open_store(where) as database:
        if ranker is not None:
            found = inspection.inspect(database, ranker, last)
            if json:
                _out.print_json(asdict(found))
            else:
                _print_ranker(found)
            return
        rankers = database.read(admin.rankers)
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
        "who learns": found.learner_process or "nobody now",
        "made": _day(found.created),
        **_moved(found.movement),
    }
    _out.print_table(found.ranker, ["", ""], [[name, value] for name, value in facts.items()], numbers_from=2)
    _print_inside(found.learner)
    curves = found.curves
    if curves.lists:
        rows = []
        for name, values in (
            ("clicks a list", curves.clicks),
            ("reciprocal rank of the first click", curves.reciprocal_rank),
            ("positions not in the order of scores", curves.explored),
            ("fallbacks", curves.fallbacks),
        ):
            known = [value for value in values if value is not None]
            if known:
                rows.append([name, _out.sparkline(values), f"{known[0]:.3f}", f"{known[-1]:.3f}"])
        title = f"The last {curves.lists:,} lists, in {len(curves.clicks)} parts"
        _out.print_table(title, ["", "", "first", "last"], rows, numbers_from=2)
        rates = [f"{rate:.3f}" for rate in curves.by_position[:10]]
        positions = [str(rank + 1) for rank in range(len(rates))]
        title = f"Clicks a display, by position {_out.sparkline(curves.by_position)}"
        _out.print_table(title, positions, [rates], numbers_from=0)
    if found.versions:
        rows = [
            [f"v{one['version']}", f"{one['learned_impressions']:,}", _day(one["created"]), one["note"]]
            for one in found.versions
        ]
        _out.print_table("Versions", ["", "learned impressions", "kept", "note"], rows[:MOST], numbers_from=9)


def _moved(found: dict[str, Any]) -> dict[str, str]:
    """How far from the caller's order, what is remembered, what was noticed, as far as the learner tells."""
    facts = {}
    if found["lists"]:
        pairs = "" if found["agreement"] is None else f"; {found['agreement']:.0%} of pairs as you had them"
        facts[f"moved from your order, last {found['lists']:,} lists"] = (
            f"{found['displacement']:.1f} places{pairs}; first item the same in {found['same_first']:.0%} of lists; "
            f"{found['brought_up']:.0%} of items brought up from below"
        )
    if (memory := found["memory"]) is not None:
        share = "" if memory["share"] is None else f", {memory['share']:.0%} of these lists"
        facts["queries remembered"] = f"{memory['queries']:,}{share}"
    if (drift := found["drift"]) is not None:
        when = f", the last at list {drift['latest'][-1]:,} of {drift['lists']:,}" if drift["latest"] else ""
        since = f"; the model that ranks took over at list {drift['since']:,}" if drift["since"] else ""
        facts["drift alarms"] = f"{drift['alarms']:,}{when}{since}"
    return facts


def _print_learned(where: str, learned: Learned) -> None:
    print(f"{where}: {learned.learner}")
    _print_inside(learned)


def _print_inside(learned: Learned) -> None:
    if learned.parameters:
        rows = [[name, str(value)] for name, value in learned.parameters.items()]
        _out.print_table(f"Parameters of {learned.learner}", ["", ""], rows, numbers_from=2)
    if learned.state:
        rows = [
            [
                one.name,
                f"{one.dtype} {' x '.join(map(str, one.shape))}",
                *map(_number, (one.least, one.mean, one.largest)),
            ]
            for one in learned.state
        ]
        _out.print_table("State", ["", "", "least", "mean", "largest"], rows, numbers_from=2)
    if learned.weights:
        strongest = sorted(learned.weights, key=lambda one: -abs(one.weight))[:MOST]
        rows = [[one.feature, f"{one.weight:+.4f}", _sure(one.weight, one.confidence)] for one in strongest]
        left = len(learned.weights) - len(strongest)
        title = "Weights, the strongest first" + (f"; {left:,} more with --json" if left else "")
        _out.print_table(title, ["feature", "weight", "± confidence"], rows)


def _sure(weight: float, confidence: float | None) -> str:
    if confidence is None:
        return ""
    return f"± {confidence:.4f}" + ("" if abs(weight) > confidence else " (uncertain)")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
