"""Sweeps: many runs as data, carried out once each, into one Parquet file.

A sweep in TOML, which is the product of everything under `vary`, the learners and the seeds:

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

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa

from rankloop.clicks.users import open_user
from rankloop.core.cluster import Cluster
from rankloop.core.errors import DataError, InvalidParameter, RankloopError
from rankloop.core.registry import learner_class, make
from rankloop.core.rng import Rng
from rankloop.lab.datasets.sources import check_spec
from rankloop.lab.runs import results
from rankloop.lab.runs.delays import open_delays
from rankloop.lab.runs.provenance import Provenance, provenance
from rankloop.lab.runs.trial import Trial
from rankloop.lab.runs.workers import Event, Failure, OnEvent, Runnable, outcomes
from rankloop.lab.worlds.world import parse_world

# -- sweeps as data ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """Runs that belong together."""

    name: str
    trials: list[Trial]
    names: dict[str, str] = field(default_factory=dict)  # a trial's label -> what figures call it


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
    "tuple[str, ...]": ((list,), "a list of texts"),
    "tuple[int, ...]": ((list,), "a list of whole numbers"),
}
_CELL = ("data", "user", "models", "model", "query", "start", "rounds", "k", "gamma", "delays", "world", "evaluate_on")
_FIELDS = {f.name: _KINDS[str(f.type)] for f in fields(Trial) if f.name not in ("learner", "params")}
_LEARNER_KEYS = ("name", "label", "params")


def load_sweep(path: Path | str) -> Sweep:
    """The sweep that a TOML file describes. Everything in it is checked before anything runs, but for what
    is inside data files."""
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


def _sweep(content: Mapping[str, Any], stem: str) -> Sweep:
    _only(content, ("name", "shared", "vary", "learners"), "a sweep")
    name = content.get("name", stem)
    if not isinstance(name, str) or not name or "/" in name:
        raise InvalidParameter(f"name is {name!r}; it must be a text without slashes: files are called by it")
    shared, vary = _table(content, "shared"), _table(content, "vary")
    seeds = _seeds(shared)
    for key, value in shared.items():
        _check(key, value, "[shared]")
    for key, values in vary.items():
        if not isinstance(values, list) or not values:
            raise InvalidParameter(f"{key} in [vary] is {values!r}; it must be a list with at least one value")
        for value in values:
            _check(key, value, "[vary]")
    twice = sorted(set(shared) & set(vary))
    if twice:
        raise InvalidParameter(f"{twice[0]} stands in [shared] and in [vary]; keep one of them")
    if "seed" in vary and seeds != [None]:
        raise InvalidParameter("seeds stands in [shared] and seed in [vary]; keep one of them")
    trials, names = [], {}
    for learner, params, label in _learners(content):
        for values in product(*vary.values()):
            for seed in seeds:
                settings = {**shared, **dict(zip(vary, values, strict=True))}
                if seed is not None:
                    settings["seed"] = seed
                settings |= {key: tuple(settings[key]) for key in ("probes", "marks") if key in settings}
                trials.append(Trial(learner, params=params, **settings))
                if label:
                    names[trials[-1].label] = label
    check_trials(trials)
    _one_label_each(trials, names)
    return Sweep(name, trials, names)


def _learners(content: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    listed = content.get("learners")
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, dict) for entry in listed):
        raise InvalidParameter("there is no [[learners]]; give at least one, with a name")
    found = []
    for entry in listed:
        _only(entry, _LEARNER_KEYS, "[[learners]]")
        name, label, params = entry.get("name"), entry.get("label", ""), entry.get("params", {})
        for key, value in (("name", name), ("label", label)):
            if not isinstance(value, str):
                raise InvalidParameter(f"{key} in [[learners]] is {value!r}; it must be a text")
        if not isinstance(params, dict):
            raise InvalidParameter(f"params of {name} is {params!r}; it must be a table such as {{ alpha = 0.1 }}")
        make(str(name), **params)  # an unknown name or parameter is told now and not after hours
        found.append((str(name), params, str(label)))
    return found


def _one_label_each(trials: Sequence[Trial], names: Mapping[str, str]) -> None:
    owner: dict[str, str] = {}
    for label in dict.fromkeys(trial.label for trial in trials):
        other = owner.setdefault(names.get(label, label), label)
        if other != label:
            raise InvalidParameter(
                f"label {names.get(label, label)!r} stands for two learners, {other} and {label}; give each its own"
            )


def _seeds(shared: dict[str, Any]) -> list[int | None]:
    """Takes `seeds` out of [shared]."""
    if "seeds" not in shared:
        return [None]
    seeds = shared.pop("seeds")
    if "seed" in shared:
        raise InvalidParameter("seed and seeds both stand in [shared]; keep one of them")
    if isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1:
        return list(range(seeds))
    whole = isinstance(seeds, list) and all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds)
    if not whole or not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise InvalidParameter(f"seeds is {seeds!r}; it must be a number of seeds or a list of different ones")
    return list(seeds)


def _check(key: str, value: Any, where: str) -> None:
    if key not in _FIELDS:
        also = " and seeds" if where == "[shared]" else ""
        raise InvalidParameter(f"{where} has no key {key!r}; it takes {', '.join(_FIELDS)}{also}")
    types, said = _FIELDS[key]
    inside = str if said == "a list of texts" else int
    alike = not isinstance(value, list) or all(type(item) is inside for item in value)
    if not isinstance(value, types) or isinstance(value, bool) != (types == (bool,)) or not alike:
        raise InvalidParameter(f"{key} in {where} is {value!r}; it must be {said}")


def _table(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise InvalidParameter(f"{key} is {table!r}; write it as a table, [{key}]")
    return dict(table)


def _only(content: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for key in content:
        if key not in known:
            raise InvalidParameter(f"{what} has no key {key!r}; it takes {', '.join(known)}")


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


def carry_out(
    trials: Sequence[Runnable],
    out: Path | str | None,
    processes: int = 1,
    on_event: OnEvent | None = None,
    cluster: Cluster | None = None,
) -> pa.Table:
    """Run what is not yet there, and put the results of all trials into the Parquet file `out`; None stores nothing.

    Each run is stored when it ends, so a sweep that was stopped goes on where it was; Ctrl-C writes the file with what
    is done and passes on. A run that fails does not stop the others: all failures are told in one error at the end.
    Runs that were computed by other code, or from other data, are repeated (`rankloop.lab.runs.provenance`), and events
    say which.

    Runs go to the workers of a `cluster` (`rankloop.core.cluster.connect`), if one is given, else to so many
    processes. They
    are the same bit for bit with any number of either, as long as this process too has one BLAS thread, as under the
    `rankloop` command (`OPENBLAS_NUM_THREADS=1`).
    """
    asked = _asked(trials)
    tell, place = _Teller(on_event, asked), None if out is None else Path(out)
    made = {run: provenance(trial) for run, trial in asked.items()}
    runs = {} if place is None else _kept(place, asked, made, tell)
    failures: list[Failure] = []
    try:
        missing = [trial for run, trial in asked.items() if run not in runs]
        with closing(outcomes(missing, processes, tell, cluster)) as stream:
            for trial, outcome in stream:
                if not isinstance(outcome, Failure) and provenance(trial) != made[trial.id]:
                    outcome = Failure(trial, "its data changed while it ran; the same call runs it again")
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                    tell(Event("failed", trial, reason=outcome.reason))
                else:
                    runs[trial.id] = results.rows_of(outcome, made[trial.id])
                    if place is not None:
                        results.store(place, runs[trial.id], getattr(outcome, "trace", {}))
                    tell(Event("finished", trial, trial.rounds))
    finally:
        table = results.table_of(row for run in asked if run in runs for row in runs[run])
        if place is not None:
            results.write_results(place, table)
    if failures:
        raise _told(failures, len(asked), place)
    return table


def _asked(trials: Sequence[Runnable]) -> dict[str, Runnable]:
    """Trials by id; refuses two that a table of results could not tell apart."""
    found: dict[str, Runnable] = {}
    learners: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for trial in trials:
        if found.setdefault(trial.id, trial) != trial:
            raise InvalidParameter(f"two different runs are called {trial.id}; give one of them another label")
        label, learner = getattr(trial, "label", None), (getattr(trial, "learner", ""), getattr(trial, "params", {}))
        if label is not None:
            cell = (label, *(getattr(trial, name, None) for name in _CELL))
            if learners.setdefault(cell, learner) != learner:
                raise InvalidParameter(
                    f"label {label!r} stands for two learners, {_said(*learners[cell])} and {_said(*learner)}; their "
                    "runs could not be told apart: give each its own"
                )
    return found


def _said(learner: str, params: Mapping[str, Any]) -> str:
    return f"{learner}({', '.join(f'{name}={value}' for name, value in params.items())})"


def _kept(
    out: Path, asked: Mapping[str, Runnable], made: Mapping[str, Provenance], tell: OnEvent
) -> dict[str, list[results.Row]]:
    """The rows of what need not run again; tells what is kept and what is not."""
    out.parent.mkdir(parents=True, exist_ok=True)
    stored, runs = results.finished_runs(out), {}
    for run, trial in asked.items():
        rows = stored.get(run, {}).get(made[run])
        if rows is not None and (not getattr(trial, "trace", False) or results.has_trace(out, rows)):
            runs[run] = rows
            tell(Event("kept", trial, trial.rounds))
        elif rows is None and run in stored:
            same_code = any(old.code == made[run].code for old in stored[run])
            tell(Event("outdated", trial, reason="other data" if same_code else "other code"))
    return runs


def _told(failures: Sequence[Failure], runs: int, out: Path | None) -> RankloopError:
    lines = [f"{failure.trial.id}: {failure.reason}" for failure in failures]
    others = f"; the others are in {out}" if out else ""
    error = RankloopError(f"{len(failures)} of {runs} runs failed{others}\n" + "\n".join(lines))
    for details in {failure.details for failure in failures if failure.details}:
        error.add_note(details)
    return error


class _Teller:
    """Tells who watches what happened, and how far the sweep is."""

    def __init__(self, on_event: OnEvent | None, asked: Mapping[str, Runnable]) -> None:
        self.on_event, self.runs = on_event, len(asked)
        self.total = sum(trial.rounds for trial in asked.values())
        self.rounds: dict[str, int] = {}  # done of each run
        self.done = 0

    def __call__(self, event: Event) -> None:
        ended = event.kind in ("kept", "finished", "failed")
        self.done += ended
        self.rounds[event.trial.id] = event.trial.rounds if ended else event.rounds
        if self.on_event:
            share = sum(self.rounds.values()) / self.total
            self.on_event(replace(event, done=self.done, runs=self.runs, share=share))
