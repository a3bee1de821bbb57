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
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.evaluation.off_policy import IntervalEstimate
    from rankloop.service.offline.estimates import Findings, Found

ABOUT = "of the items that were shown, in each policy's order; the log keeps no other candidates"


def add_to(app: App) -> None:
    """Register the command."""
    app.command(replay)


def replay(
    ranker: str,
    /,
    *,
    store: str | None = None,
    log: Path | None = None,
    version: int | None = None,
    at: int | None = None,
    start: Annotated[int | None, Parameter(name="--from")] = None,
    out: Path | None = None,
    challenger: Annotated[list[str] | None, Parameter(name="--try", negative=())] = None,
    since: int = 0,
    best: bool = False,
    examination: str = "auto",
    model: str | None = None,
    gain: Literal["clicks", "dcg", "reciprocal", "reward"] = "clicks",
    clip: float = float("inf"),
    level: float = 0.95,
    seed: int | None = None,
    processes: int = 1,
    cluster: str | None = None,
    json: bool = False,
) -> None:
    """Rebuild what a ranker has learned from its log, bit for bit; or try other learners on the log.

    Without --try: learns again what the ranker learned, compares the bits with every version and snapshot on the way,
    and says whether they are equal (exit code 1 if not). --out keeps the learner in a file.

    With --try: each learner walks along the log, says what it would have shown, and then learns from what users did.
    Estimated is how many clicks its lists would have got. The log has the rows of the items that were shown, not of all
    candidates: a learner is asked for its order of these, and that is what its figures are about. docs/replay.md tells
    what they assume. The running service is not touched.

    With --log the past is read from what `rankloop export-log` wrote, instead of from the store: as much of it as there
    is, in constant memory, with the same bits. --processes reads it in parallel, --cluster on a Dask
    cluster.

    Example: rankloop replay shop

    Example: rankloop replay shop --version 3 --out v3.rankloop

    Example: rankloop replay shop --try "pairrank?alpha=0.1" --try pdgd --model pbm

    Example: rankloop replay shop --log /srv/log --try pdgd --try v3.rankloop --cluster tcp://10.0.0.5:8786

    Parameters
    ----------
    ranker
        Its name.
    store
        As in `rankloop serve`.
    log
        A folder that `rankloop export-log` wrote, in the place of a store.
    version
        Rebuild this version; if not given, the newest state.
    at
        Rebuild the state after so many outcomes; with --try, stop there.
    start
        Begin with this version, not where learning began.
    out
        Save the rebuilt learner here: `rankloop.load`, `rankloop inspect` and `rankloop interleave` read it.
    challenger
        A learner to try, `pairrank?alpha=0.1`, or a file with a saved one, which then stays as it is; may be repeated.
        The logged lists and the base order come by themselves.
    since
        With --try: the first outcome to use.
    best
        With --try: value what a learner believes best, not what it would have shown while it tries things out.
    examination
        How often users look at each rank: swaps (from lists that chance could have swapped), pairs (the same item of
        the same query at several ranks), pbm (a fitted position-based model), 1/rank, or numbers: 1,0.6,0.4. auto is
        the first of swaps, pairs and 1/rank that knows all ranks.
    model
        Fit this click model (pbm, dcm, ubm, …) for doubly robust estimates.
    gain
        What a click is worth: clicks counts all alike, dcg by 1/log2(1 + rank), reciprocal by 1/rank. reward: what was
        earned, in the unit of the ranker's reward, each reward cut at the scale in force.
    clip
        No click (and no list) counts more than this.
    level
        Of the intervals.
    seed
        Of the challengers' random numbers; the ranker's own if not given.
    processes
        With --log and --try: local processes that evaluate challengers in parallel.
    cluster
        Likewise, address of a Dask scheduler (`tcp://10.0.0.5:8786`); workers must have the folder under the same path.
    json
        Print JSON instead of tables.
    """
    try:
        from rankloop.service.offline.replay import open_store
        from rankloop.service.settings import from_environment
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"replay needs {error.name}; pip install 'rankloop[service]'") from None

    if challenger and (version is not None or start is not None or out is not None):
        raise InvalidParameter("--try cannot be had with --version, --from or --out; rebuild in a call of its own")
    if not 0 <= since < 2**63:
        raise InvalidParameter(f"since is {since}; it must be at least 0")
    if log is not None and store is not None:
        raise InvalidParameter("--log is read in the place of --store; give one of them")
    parallel = cluster is not None or processes > 1
    if parallel and (log is None or not challenger or model is not None):
        raise InvalidParameter("--processes and --cluster need --log with --try, and no --model: workers read files")
    if gain == "reward" and model is not None:
        raise InvalidParameter("--model predicts clicks, not rewards; leave it out, or take --gain clicks")
    if out is not None:
        _out.check_writable(out)
    if parallel:  # workers may run in another folder
        challenger = [str(Path(one).resolve()) if Path(one).is_file() else one for one in challenger or []]
    _out.say_when_compiling()
    opened = open_store(from_environment(store=store).store) if log is None else nullcontext(log)
    with _out.executor(processes, cluster) as executor, opened as source:
        if not challenger:
            _rebuild(source, ranker, version, at, start, out, json)
            return
        shows: Any = "best" if best else "rank"
        terms = (since, at, seed, shows, gain, clip)
        found, scale, unit = _estimate(source, ranker, challenger, terms, examination, model, level, executor)
    if json:
        reward = {} if scale is None else {"unit": unit, "scale": scale}
        _out.print_json({**_plain(ranker, gain, level, found), **reward})
    else:
        _print_findings(ranker, gain, level, found, unit)


def _estimate(
    source: Any,
    ranker: str,
    challengers: list[str],
    terms: Any,
    examination: str,
    model: Any,
    level: float,
    executor: Any,
) -> tuple[Findings, float | None, str]:
    """The figures; by reward, they are in its unit: also its scale and its unit."""
    from rankloop.evaluation.off_policy import gains
    from rankloop.service.offline.challengers import planned, try_out
    from rankloop.service.offline.estimates import Pages, check_examination, check_model, figures, find

    check_examination(examination)  # what is wrong is told before the log is read
    by_reward = terms[4] == "reward"
    terms = (*terms[:4], "clicks" if by_reward else terms[4], terms[5], by_reward)
    gains(terms[4], 1)
    if model is not None:
        check_model(model)
    walk = planned(source, ranker, challengers, *terms)
    with _out.progress_bars() as bars:
        task = bars.add_task("reading the log", total=None)

        def report(what: str, done: int, total: int) -> None:
            _show(bars, task, what, done, total)

        def read_pages() -> Pages:
            """Only where swaps do not tell: this keeps every list in memory."""
            bare, pages = walk._replace(terms=walk.terms._replace(challengers=())), Pages()
            try_out(bare, pages, on_progress=lambda n, of: report("pages", n, of))
            return pages

        def lists(done: int, total: int) -> None:
            report("lists", done, total)

        if executor is None:
            tries = try_out(walk, keep=model is not None, on_progress=lists)
            found = find(tries, read_pages, examination, model, level, on_progress=report)
        else:
            from rankloop.service.offline.spread import try_out_on

            tally, idle = try_out_on(executor, walk, lists)
            found = figures(tally, idle, read_pages, examination, level=level, on_progress=report)
    scale, reward = walk.terms.scale, walk.row.spec.reward
    return (found if scale is None else found.in_unit(scale)), scale, "" if reward is None else reward.unit


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
        rate = f"{folded / seconds:,.0f} a second" if folded else "none to learn"
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


def _print_findings(ranker: str, gain: str, level: float, found: Findings, of_reward: str) -> None:
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
        names = [name for name in ("ips", "snips", "model", "dr") if name in found.policies[0].by_list]
        rows = [
            [one.label, *(_interval(one.by_list[name]) for name in names), f"{one.by_list['ips'].effective:,.0f}"]
            for one in found.policies
        ]
        title = f"By list: {found.whole:,} lists that had all candidates, and whose probability is known"
        _out.print_table(title, [f"by list, {level:.0%}", *names, "effective lists"], rows)
    for text in _warnings(found):
        print(f"note: {text}")


def _warnings(found: Findings) -> list[str]:
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


def _plain(ranker: str, gain: str, level: float, found: Findings) -> dict[str, Any]:
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


def _policy(one: Found) -> dict[str, Any]:
    return {
        "policy": one.label,
        "value": one.value._asdict(),
        "against_logged": one.difference and one.difference._asdict(),
        "verdict": _verdict(one.difference) or None,
        "by_position": {name: estimate._asdict() for name, estimate in one.by_position.items()},
        "by_list": {name: estimate._asdict() for name, estimate in one.by_list.items()},
        "curve": one.curve,
    }
