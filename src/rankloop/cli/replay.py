"""`rankloop replay`: rebuild what was learned from the log, and try other learners on it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.cli._store import Json, Store, readable
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.evaluation.off_policy import IntervalEstimate
    from rankloop.service.offline.off_policy_estimates import Estimates, PolicyEstimates
    from rankloop.service.offline.policy_comparison import ComparisonPlan

ABOUT = "of the items that were shown, in each policy's order; the log keeps no other candidates"


def add_to(app: App) -> None:
    """Register the command."""
    app.command(replay)


def replay(
    ranker: str,
    /,
    *,
    store: Store = None,
    log: Path | None = None,
    version: int | None = None,
    at: int | None = None,
    start: Annotated[int | None, Parameter(name="--from")] = None,
    out: Path | None = None,
    challenger: Annotated[list[str] | None, Parameter(name="--try", negative=())] = None,
    since: int = 0,
    best: bool = False,
    examination: str = "auto",
    gain: Literal["clicks", "dcg", "reciprocal", "reward"] = "clicks",
    clip: float = float("inf"),
    level: float = 0.95,
    seed: int | None = None,
    json: Json = False,
) -> None:
    """Rebuild what a ranker has learned from its log, bit for bit; or try other learners on the log.

    Without --try: learns from the log again, and compares the bits with every version and snapshot on the way (exit
    code 1 if they differ). --out saves the learner to a file.

    With --try: for each impression, each learner first ranks the items, then learns from the feedback. The command
    estimates how many clicks its rankings would have received. The log has the features of the items that were shown,
    not of all candidates, so the estimates are about the order of these items. docs/replay.md lists the assumptions.

    With --log the log is read from the files of `rankloop export-log`, in constant memory. The service may run.

    Example: rankloop replay shop

    Example: rankloop replay shop --version 3 --out v3.rankloop

    Example: rankloop replay shop --try "pairrank?alpha=0.1" --try pdgd

    Example: rankloop replay shop --log /srv/log --try pdgd --try v3.rankloop

    Parameters
    ----------
    ranker
        Its name.
    log
        A folder that `rankloop export-log` wrote, instead of a store.
    version
        Rebuild this version; the newest state, if not given.
    at
        Rebuild the state after this number of outcomes; with --try, stop there.
    start
        Begin with this version, not where learning began.
    out
        Save the rebuilt learner here: `rankloop.load`, `rankloop inspect` and `rankloop interleave` read it.
    challenger
        A learner to try, `pairrank?alpha=0.1`, or a file with a saved one, which does not learn; may be repeated. The
        logged rankings and the baseline rankings are always included.
    since
        With --try: the first outcome to use.
    best
        With --try: rank without exploration.
    examination
        How often users examine each rank: swaps (from rankings in which two items could have been swapped by chance),
        pairs (the same item of the same query at several ranks), 1/rank, or numbers: 1,0.6,0.4. auto is the first of
        swaps, pairs and 1/rank that covers all ranks.
    gain
        The value of a click: clicks counts all alike, dcg by 1/log2(1 + rank), reciprocal by 1/rank. reward: what was
        earned, in the unit of the ranker's reward, each reward cut at the scale in force.
    clip
        Upper limit of the weight of a click, and of an impression.
    level
        Of the intervals.
    seed
        Of the challengers' random numbers; the ranker's own if not given.
    """
    if challenger and (version is not None or start is not None or out is not None):
        raise InvalidParameter("--try cannot be combined with --version, --from or --out; rebuild in a call of its own")
    if not 0 <= since < 2**63:
        raise InvalidParameter(f"since is {since}; it must be at least 0")
    if log is not None and store is not None:
        raise InvalidParameter("--log is read instead of --store; give one of them")
    if out is not None:
        _out.check_writable(out)
    _out.say_when_compiling()
    with readable(store) if log is None else nullcontext(log) as source:
        if not challenger:
            _rebuild(source, ranker, version, at, start, out, json)
            return
        found, plan = _estimate(source, ranker, challenger, since, at, seed, best, gain, clip, examination, level)
    scale, reward = plan.settings.scale, plan.row.spec.reward
    unit = "" if reward is None else reward.unit
    if json:
        extra = {} if scale is None else {"unit": unit, "scale": scale}
        _out.print_json({**_plain(ranker, gain, level, found), **extra})
    else:
        _print_estimates(ranker, gain, level, found, unit)


def _estimate(
    source: Any, ranker: str, challengers: list[str], since: int, at: Any, seed: Any, best: bool, gain: Any,
    clip: float, examination: str, level: float,
) -> tuple[Estimates, ComparisonPlan]:  # fmt: skip
    from rankloop.evaluation.off_policy import gains
    from rankloop.service.offline.off_policy_estimates import SessionGathering, check_examination, estimate_policies
    from rankloop.service.offline.policy_comparison import plan_comparison, run_comparison

    check_examination(examination)  # before the log is read
    by_reward = gain == "reward"
    clicks: Any = "clicks" if by_reward else gain
    gains(clicks, 1)
    shows: Any = "best" if best else "rank"
    plan = plan_comparison(source, ranker, challengers, since, at, seed, shows, clicks, clip, by_reward)
    with _out.progress_bars() as bars:
        task = bars.add_task("reading the log", total=None)

        def report(what: str, done: int, total: int) -> None:
            _show(bars, task, what, done, total)

        def sessions() -> SessionGathering:
            """Only if swaps do not suffice: this keeps every impression in memory."""
            bare, found = plan._replace(settings=plan.settings._replace(challengers=())), SessionGathering()
            run_comparison(bare, found, on_progress=lambda n, of: report("sessions", n, of))
            return found

        comparison = run_comparison(plan, on_progress=lambda n, of: report("impressions", n, of))
        found = estimate_policies(comparison, sessions, examination, level, on_progress=report)
    return (found if plan.settings.scale is None else found.in_unit(plan.settings.scale)), plan


def _show(bars: Any, task: Any, what: str, done: int, total: int) -> None:
    bars.update(task, description=what, completed=done, total=total)


# -- rebuilding ----------------------------------------------------------------------------------------------------


def _rebuild(
    source: Any, ranker: str, version: int | None, at: int | None, start: int | None, out: Path | None, json: bool
) -> None:
    from rankloop.core import registry
    from rankloop.service.offline.replay import rebuild

    began = time.perf_counter()
    with _out.progress_bars() as bars:
        task = bars.add_task("learning again", total=None)
        found = rebuild(source, ranker, version, at, start, lambda n, of: _show(bars, task, "learning again", n, of))
    seconds = time.perf_counter() - began
    if out is not None:
        registry.save(found.learner, out)
    folded = found.seq - found.start_seq
    if json:
        compared = [one._asdict() for one in found.compared]
        facts = {"ranker": ranker, "outcomes": found.seq, "begun_with": found.start, "begun_at": found.start_seq}
        more = {"learned": found.learned, "refused": found.failed, "seconds": seconds, "note": found.note}
        _out.print_json({**facts, **more, "equal": found.equal, "compared": compared, "out": out and str(out)})
    else:
        rows = [[one.name, f"{one.seq:,}", "equal" if one.equal else "NOT EQUAL"] for one in found.compared]
        if rows:
            _out.print_table(f"{ranker}: bits rebuilt, against what is stored", ["", "outcomes", "bits"], rows)
        rate = f"{folded / seconds:,.0f} per second" if folded else "none to learn"
        print(f"{ranker}: {folded:,} outcomes from {found.start} at {found.start_seq:,} to {found.seq:,}, {rate}")
        for note in filter(None, (found.note, _refused(found.failed), _nothing(found.compared))):
            print(note)
        if out is not None:
            print(f"wrote {out}")
    if not found.equal:
        sys.exit(1)


def _refused(count: int) -> str:
    return f"{count:,} outcomes were refused by the learner, as when they came" if count else ""


def _nothing(compared: Sequence[Any]) -> str:
    return "" if compared else "nothing is stored at that point to compare the bits with"


# -- trying --------------------------------------------------------------------------------------------------------


def _print_estimates(ranker: str, gain: str, level: float, found: Estimates, of_reward: str) -> None:
    looked = " ".join(f"{value:.2f}" for value in found.examination[:10])
    print(f"{ranker}: {found.lists:,} lists, {found.clicks:,} clicks. Examination by rank ({found.source}): {looked}")
    units = {"clicks": "clicks", "dcg": "discounted clicks", "reciprocal": "reciprocal ranks"}
    unit = units.get(gain, of_reward or "reward")
    rows = [
        [
            one.label,
            _interval(one.value),
            "" if one.difference is None else _interval(one.difference, "+"),
            _verdict(one.difference),
            f"{one.value.effective:,.0f}",
            _out.sparkline(one.curve),
        ]
        for one in found.policies
    ]
    columns = [f"by position, {level:.0%}", f"{unit} a list", "against logged", "", "effective clicks", "along the log"]
    _out.print_table(f"{unit[0].upper()}{unit[1:]} a list, {ABOUT}", columns, rows)
    if found.whole > 1:
        names = [name for name in ("ips", "snips") if name in found.policies[0].by_list]
        rows = [
            [one.label, *(_interval(one.by_list[name]) for name in names), f"{one.by_list['ips'].effective:,.0f}"]
            for one in found.policies
        ]
        title = f"By impression: {found.whole:,} with all candidates and a known propensity"
        _out.print_table(title, [f"by list, {level:.0%}", *names, "effective lists"], rows)
    for text in _warnings(found):
        print(f"note: {text}")


def _warnings(found: Estimates) -> list[str]:
    told = [found.warning]
    for one in found.policies:
        if one.value.warning != found.warning:
            told.append(one.value.warning and f"{one.label}: {one.value.warning}")
        lacking = one.by_list.get("ips")
        told.append(f"{one.label}, by list: {lacking.warning}" if lacking and lacking.warning else "")
    told += [f"{label}: learned nothing, it learns from lists that it has mixed itself" for label in found.idle]
    return list(dict.fromkeys(filter(None, told)))


def _interval(one: IntervalEstimate, sign: str = "") -> str:
    return f"{one.value:{sign}.4f} [{one.low:{sign}.4f}, {one.high:{sign}.4f}]"


def _verdict(difference: IntervalEstimate | None) -> str:
    if difference is None:
        return ""
    return "better" if difference.low > 0 else "worse" if difference.high < 0 else "undecided"


def _plain(ranker: str, gain: str, level: float, found: Estimates) -> dict[str, Any]:
    return {
        "ranker": ranker,
        "about": ABOUT,
        "gain": gain,
        "level": level,
        "lists": found.lists,
        "clicks": found.clicks,
        "lists_with_propensity": found.drawn,
        "lists_with_all_candidates": found.whole,
        "examination": {"source": found.source, "values": found.examination.tolist(), "warning": found.warning},
        "learned_nothing": found.idle,
        "policies": [_policy(one) for one in found.policies],
    }


def _policy(one: PolicyEstimates) -> dict[str, Any]:
    return {
        "policy": one.label,
        "value": one.value._asdict(),
        "against_logged": one.difference and one.difference._asdict(),
        "verdict": _verdict(one.difference) or None,
        "by_position": {name: estimate._asdict() for name, estimate in one.by_position.items()},
        "by_list": {name: estimate._asdict() for name, estimate in one.by_list.items()},
        "curve": one.curve,
    }
