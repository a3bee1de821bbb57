"""Sweeps: many runs as data, each carried out once, into one Parquet file.

A sweep in TOML is the product of everything under `vary`, the learners and the seeds:

    name = "first-look"

    [shared]                  # any field of `Trial`
    rounds = 5000
    seeds = 5                 # 0 … 4; or a list

    [vary]
    data = ["synthetic:mslr", "synthetic:yahoo"]
    user = ["perfect", "navigational", "informational"]

    [[learners]]
    name = "pairrank"
    label = "PairRank"        # what figures call it; optional
    params = { alpha = 0.1 }
"""

from __future__ import annotations

import platform
import tomllib
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import closing
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from rankloop.clicks.users import open_user
from rankloop.core.errors import DataError, InvalidParameter, RankloopError
from rankloop.core.executors import ClusterError, ProcessDied, open_executor, result_of
from rankloop.core.registry import learner_class, make
from rankloop.core.rng import Rng
from rankloop.lab.datasets.sources import check_spec
from rankloop.lab.runs import results
from rankloop.lab.runs.provenance import Provenance, provenance
from rankloop.lab.runs.record import Progress, Record, Runnable, parameters_as_text
from rankloop.lab.runs.simulate import open_delays
from rankloop.lab.runs.trial import Trial
from rankloop.lab.worlds.world import parse_world

# -- sweeps as data ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """Runs that belong together."""

    name: str
    trials: list[Trial]
    names: dict[str, str] = field(default_factory=dict)  # a trial's label -> what figures call it


_CELL = ("data", "user", "models", "model", "query", "start", "rounds", "k", "gamma", "delays", "world", "evaluate_on")
_FIELDS = [f.name for f in fields(Trial) if f.name not in ("learner", "params")]


def load_sweep(path: Path | str) -> Sweep:
    """Read the sweep that a TOML file describes, and check everything but what is inside data files."""
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not TOML ({error})") from None
    try:
        return _sweep(content, Path(path).stem)
    except RankloopError as error:
        raise type(error)(f"{path}: {error}") from None


def _sweep(content: dict[str, Any], stem: str) -> Sweep:
    _check_keys(content, {"name": str, "shared": dict, "vary": dict, "learners": list}, "a sweep")
    name, shared, vary = content.get("name", stem), content.get("shared", {}), content.get("vary", {})
    if not name or "/" in name:
        raise InvalidParameter(f"name is {name!r}; it must be a text without slashes: files are called by it")
    seeds = _seeds(shared.pop("seeds", [shared.get("seed", 0)]))
    _check_keys(shared, dict.fromkeys(_FIELDS, object), "[shared]")
    _check_keys(vary, dict.fromkeys(_FIELDS, list), "[vary]")
    twice = set(shared) & set(vary)
    if twice:
        raise InvalidParameter(f"{min(twice)} stands in [shared] and in [vary]; keep one of them")
    if not content.get("learners"):
        raise InvalidParameter("there is no [[learners]]; give at least one, with a name")
    trials, names = [], {}
    for learner in content["learners"]:
        _check_keys(learner, {"name": str, "label": str, "params": dict}, "[[learners]]")
        params = learner.get("params", {})
        make(learner.get("name", ""), **params)  # an unknown name or parameter is reported now and not after hours
        for values, seed in product(product(*vary.values()), seeds):
            settings = {"seed": seed, **shared, **dict(zip(vary, values, strict=True))}
            settings |= {key: tuple(settings[key]) for key in ("probes", "checkpoints") if key in settings}
            trials.append(Trial(learner["name"], params=params, **settings))
            names[trials[-1].label] = learner.get("label", trials[-1].label)
    check_trials(trials)
    owner: dict[str, str] = {}
    for label, shown in names.items():
        if owner.setdefault(shown, label) != label:
            raise InvalidParameter(
                f"label {shown!r} stands for two learners, {owner[shown]} and {label}; give each its own"
            )
    return Sweep(name, trials, names)


def _seeds(seeds: Any) -> list[int]:
    found = list(range(seeds)) if type(seeds) is int else seeds
    if not isinstance(found, list) or not found or len(set(map(repr, found))) < len(found):
        raise InvalidParameter(f"seeds is {seeds!r}; it must be a number of seeds or a list of different ones")
    return found


def _check_keys(content: Any, known: Mapping[str, type], what: str) -> None:
    if not isinstance(content, dict):
        raise InvalidParameter(f"{what} is {content!r}; it must be a table")
    for key, value in content.items():
        if key not in known:
            raise InvalidParameter(f"{what} has no key {key!r}; it takes {', '.join(known)}")
        if not isinstance(value, known[key]):
            raise InvalidParameter(f"{key} in {what} is {value!r}; it must be a {known[key].__name__}")


def check_trials(trials: Sequence[Trial]) -> None:
    """Refuse what is wrong before any data is opened: data specs, users, delays, worlds, seeds, a run twice."""
    seen = set()
    for trial in trials:
        check_spec(trial.data)
        open_user(trial.user, highest_grade=4, kind=learner_class(trial.learner).feedback)
        open_delays(trial.delays)
        parse_world(trial.world)
        Rng(trial.seed)
        if trial.id in seen:
            raise InvalidParameter(f"{trial.id} is asked for twice; name each learner with the same parameters once")
        seen.add(trial.id)


# -- carrying them out ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """Something that happened in a sweep.

    `kept`: the run was stored before. `outdated`: it was, but from other code or other data (the reason), so it runs
    again. `progress`: rounds done, of runs in this process. At the end `finished` or `failed` (with the reason).
    """

    kind: Literal["kept", "outdated", "progress", "finished", "failed"]
    trial: Runnable
    rounds: int = 0
    reason: str = ""
    done: int = 0  # runs kept, finished or failed
    runs: int = 0  # of so many
    share: float = 0.0  # of all rounds that are done


OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end."""

    reason: str  # one line
    details: str = ""  # the traceback of an unexpected error


def run_trials(
    trials: Sequence[Runnable],
    out: Path | str | None,
    processes: int = 1,
    on_event: OnEvent | None = None,
    executor: Executor | None = None,
) -> pa.Table:
    """Run what is not stored yet, and write the results of all trials into the Parquet file `out`; None stores nothing.

    Each run is stored when it ends, so an interrupted sweep continues where it was. A run that fails does not stop the
    others: one error at the end has all failures. Runs that were computed by other code, or from other data, are
    repeated (`rankloop.lab.runs.provenance`).

    Runs go to the `executor` (`rankloop.core.executors.open_executor`) if one is given, else to so many local
    processes. The results have the same bits wherever linear algebra has one thread, as under the `rankloop` command
    (`OPENBLAS_NUM_THREADS=1`).
    """
    if executor is None:
        with open_executor(processes) as local:
            return _run_trials(trials, out, on_event, local)
    return _run_trials(trials, out, on_event, executor)


def _run_trials(
    trials: Sequence[Runnable], out: Path | str | None, on_event: OnEvent | None, executor: Executor | None
) -> pa.Table:
    asked = _by_id(trials)
    report, place = _Reporter(on_event, asked), None if out is None else Path(out)
    made = {run: provenance(trial) for run, trial in asked.items()}
    runs = {} if place is None else _stored(place, asked, made, report)
    failures: dict[str, Failure] = {}
    try:
        missing = sorted((trial for run, trial in asked.items() if run not in runs), key=lambda trial: trial.data)
        with closing(_outcomes(missing, made, executor, report)) as outcomes:
            for trial, outcome in outcomes:
                if isinstance(outcome, Record) and provenance(trial) != made[trial.id]:
                    outcome = Failure("its data changed while it ran; the same call runs it again")
                if isinstance(outcome, Failure):
                    failures[trial.id] = outcome
                    report("failed", trial, reason=outcome.reason)
                    continue
                runs[trial.id] = results.rows_of(outcome, made[trial.id])
                if place is not None:
                    results.append(place, runs[trial.id])
                report("finished", trial, trial.rounds)
    finally:
        table = results.table_of(row for run in asked if run in runs for row in runs[run])
        if place is not None:
            results.write_results(place, table)
    if failures:
        raise _error_of(failures, len(asked), place)
    return table


def _outcomes(
    trials: Sequence[Runnable], made: Mapping[str, Provenance], executor: Executor | None, report: _Reporter
) -> Generator[tuple[Runnable, Record | Failure], None, None]:
    if executor is None:
        for trial in trials:
            yield trial, _attempt(trial, partial(report, "progress", trial))
        return
    futures = {executor.submit(_run_there, trial, made[trial.id]): trial for trial in trials}
    try:
        for future in as_completed(futures):
            try:
                yield futures[future], result_of(future)
            except ProcessDied as error:
                yield futures[future], Failure(str(error))
    finally:
        for future in futures:
            future.cancel()


def _run_there(trial: Runnable, expected: Provenance) -> Record | Failure:
    """In another process, perhaps of another machine: refuse to run other code or data than were asked for."""
    found = provenance(trial)
    if found != expected:
        what = f"code {found.code}" if found.code != expected.code else f"files {found.files or 'none'}"
        raise ClusterError(
            f"a worker on {platform.node()} has other {what} for {trial.id}; give all machines the same code and the "
            "same files under the same path, and restart workers whose code has changed"
        )
    return _attempt(trial)


def _attempt(trial: Runnable, on_progress: Progress | None = None) -> Record | Failure:
    try:
        return trial.run(on_progress)
    except RankloopError as error:  # its message is complete
        return Failure(str(error))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _by_id(trials: Sequence[Runnable]) -> dict[str, Runnable]:
    """Trials by id; refuses two that a table of results could not tell apart."""
    found: dict[str, Runnable] = {}
    learners: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for trial in trials:
        if found.setdefault(trial.id, trial) != trial:
            raise InvalidParameter(f"two different runs are called {trial.id}; give one of them another label")
        label, learner = getattr(trial, "label", None), (getattr(trial, "learner", ""), getattr(trial, "params", {}))
        cell = (label, *(getattr(trial, name, None) for name in _CELL))
        if label is not None and learners.setdefault(cell, learner) != learner:
            one, other = (f"{name}({parameters_as_text(given)})" for name, given in (learners[cell], learner))
            raise InvalidParameter(
                f"label {label!r} stands for two learners, {one} and {other}; their runs could not be told apart: give "
                "each its own"
            )
    return found


def _stored(
    out: Path, asked: Mapping[str, Runnable], made: Mapping[str, Provenance], report: _Reporter
) -> dict[str, list[results.Row]]:
    """The rows of what need not run again."""
    out.parent.mkdir(parents=True, exist_ok=True)
    stored, runs = results.finished_runs(out), {}
    for run, trial in asked.items():
        versions = stored.get(run, {})
        if made[run] in versions:
            runs[run] = versions[made[run]]
            report("kept", trial, trial.rounds)
        elif versions:
            same_code = any(old.code == made[run].code for old in versions)
            report("outdated", trial, reason="other data" if same_code else "other code")
    return runs


def _error_of(failures: Mapping[str, Failure], runs: int, out: Path | None) -> RankloopError:
    lines = [f"{run}: {failure.reason}" for run, failure in failures.items()]
    others = f"; the others are in {out}" if out else ""
    error = RankloopError(f"{len(failures)} of {runs} runs failed{others}\n" + "\n".join(lines))
    for details in {failure.details for failure in failures.values() if failure.details}:
        error.add_note(details)
    return error


class _Reporter:
    """Reports what happened, and how far the sweep is."""

    def __init__(self, on_event: OnEvent | None, asked: Mapping[str, Runnable]) -> None:
        self.on_event, self.runs = on_event, len(asked)
        self.total = sum(trial.rounds for trial in asked.values())
        self.rounds: dict[str, int] = {}  # done of each run
        self.done = 0

    def __call__(self, kind: Any, trial: Runnable, rounds: int = 0, reason: str = "") -> None:
        ended = kind in ("kept", "finished", "failed")
        self.done += ended
        self.rounds[trial.id] = trial.rounds if ended else rounds
        if self.on_event:
            share = sum(self.rounds.values()) / self.total
            self.on_event(Event(kind, trial, rounds, reason, self.done, self.runs, share))
