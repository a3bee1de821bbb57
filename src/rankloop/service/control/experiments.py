"""What an operator does with experiments: start, look, stop. Blocking: call in a thread."""

from __future__ import annotations

import msgspec

from rankloop.core.errors import InvalidParameter
from rankloop.service.control.actions import Action, Done, change_ranker, required, unknown
from rankloop.service.control.versions import usable
from rankloop.service.errors import Conflict, UnknownRanker
from rankloop.service.serving.engine import Engine
from rankloop.service.storage import experiments, outcomes, rankers
from rankloop.service.storage.database import Connection
from rankloop.service.storage.rewards import current_scale
from rankloop.service.training import evidence
from rankloop.wire.experiments import Experiment, ExperimentRequest


class UnknownExperiment(UnknownRanker):
    """The ranker has no experiment of that number."""


def start(engine: Engine, name: str, terms: ExperimentRequest) -> Experiment:
    """Begin to compare a ranker with something else."""
    now = engine.clock()

    def look(row: rankers.Ranker | None) -> tuple[rankers.Ranker, ExperimentRequest]:
        row = required(engine, row, name)
        exposure = terms.exposure or row.spec.exposure
        if exposure == "shadow":
            raise Conflict(
                f"ranker {name!r} is in shadow: what it shows is your order. To try its lists all the same, on a share "
                'of the requests, say which: "exposure": "full", or "bounded"'
            )
        if terms.mixing == "probabilistic" and exposure != "full":
            raise InvalidParameter(
                f'mixing is "probabilistic", which may show any item anywhere, and exposure is {exposure!r}, which may '
                'not; take "team-draft"'
            )
        for other in engine.database.read(lambda connection: experiments.running(connection, name)):
            if other.kind == "experiment":
                raise Conflict(
                    f"experiment {other.id} of ranker {name!r} is running, and there is one at a time; wait, or "
                    f"POST /v1/rankers/{name}/experiments/{other.id}/stop"
                )
            if terms.share + other.terms.share > 1.0:
                raise Conflict(
                    f"share is {terms.share:g}, but the guardrail of ranker {name!r} has {other.terms.share:g} of the "
                    f"requests; take at most {1.0 - other.terms.share:g}, or change the guardrail"
                )
        _check_rival(engine, row, terms)
        if terms.metric == "reward" and row.spec.reward is None:
            raise InvalidParameter(
                f'metric is "reward", but ranker {name!r} declares none; PATCH /v1/rankers/{name} with a reward, or '
                'take "clicks"'
            )
        return row, msgspec.structs.replace(terms, exposure=exposure)

    def change(connection: Connection, seen: tuple[rankers.Ranker, ExperimentRequest]) -> Done | None:
        if experiments.reconcile(connection, name, now):
            return None  # what was to be ended or begun is: look again
        scale = None
        if terms.metric == "reward":
            scale = current_scale(seen[0].spec.reward, outcomes.reward_sketches(connection).get(name))
            if scale is None:
                raise Conflict(
                    f"the scale of the reward of ranker {name!r} is auto, and no reward has come yet; wait for one, or "
                    "give the scale in the spec"
                )
        number = experiments.start(connection, seen[0], "experiment", seen[1], now, scale)
        return Done(number, f"experiment {number} began, against {terms.against}, share {terms.share:g}")

    number: int = change_ranker(Action(engine, "experiment", name, terms), engine, name, look, change)
    engine.changed(name)
    return one(engine, name, number)


def listed(engine: Engine, name: str) -> list[Experiment]:
    """The experiments and guardrails of a ranker, the newest first; the last hundred of them."""

    def read(connection: Connection) -> list[experiments.Experiment]:
        if rankers.get_ranker(connection, name) is None:
            raise unknown(engine, name)
        return experiments.list_experiments(connection, name)

    now = engine.clock()
    return [told(found, now) for found in engine.database.read(read)]


def one(engine: Engine, name: str, number: int) -> Experiment:
    """One of them."""

    def read(connection: Connection) -> experiments.Experiment:
        if rankers.get_ranker(connection, name) is None:
            raise unknown(engine, name)
        found = experiments.get_experiment(connection, name, number)
        if found is None:
            raise _no_experiment(connection, name, number)
        return found

    return told(engine.database.read(read), engine.clock())


def stop(engine: Engine, name: str, number: int) -> Experiment:
    """End an experiment; one that has ended stays as it is. Lists whose feedback comes later do not count."""

    def look(_: rankers.Ranker | None) -> None:
        found = one(engine, name, number)
        if found.kind == "guardrail" and found.state == "running":
            raise Conflict(
                f"{number} is the guardrail of ranker {name!r}, which is part of its spec; "
                f'PATCH /v1/rankers/{name} with {{"guardrail": null}}'
            )

    def change(connection: Connection, _: None) -> Done:
        ended = experiments.end(connection, name, number, "it was stopped", engine.clock())
        return Done(None, f"experiment {number} was stopped" if ended else None)

    change_ranker(Action(engine, "stop-experiment", name, number), engine, name, look, change)
    engine.changed(name)
    return one(engine, name, number)


def told(found: experiments.Experiment, now: float) -> Experiment:
    """An experiment as it is told."""
    terms, tally = found.terms, found.tally
    watch = evidence.watched(tally, terms.alpha)
    running = found.state == "running"
    more = evidence.forecast(tally, terms.alpha, terms.effect) if running else evidence.Forecast(None, None)
    rate = evidence.rate(tally, found.started, now) if running else 0.0

    def seconds(lists: int | None) -> float | None:
        return None if lists is None or (lists and not rate) else lists / rate if lists else 0.0

    return Experiment(
        number=found.id,
        ranker=found.ranker,
        kind=found.kind,
        against=f"v{terms.against}" if isinstance(terms.against, int) else terms.against,
        share=terms.share,
        mixing=terms.mixing,
        exposure=terms.exposure or "full",
        metric=terms.metric,
        reward_scale=tally.scale,
        alpha=terms.alpha,
        effect=terms.effect,
        note=terms.note,
        state=found.state,  # type: ignore[arg-type]
        reason=found.reason,
        started=found.started,
        ended=found.ended,
        lists=tally.lists,
        wins=tally.wins,
        losses=tally.losses,
        decided=tally.wins + tally.losses,
        preference=watch.mean if tally.lists else None,
        interval=watch.interval(),
        level=1.0 - terms.alpha,
        verdict=tally.verdict,
        evidence=tally.evidence,
        lists_needed=more.needed,
        seconds_needed=seconds(more.needed),
        lists_likely=more.likely,
        seconds_likely=seconds(more.likely),
        lists_per_second=rate,
    )


# -- helpers -------------------------------------------------------------------------------------------------------


def _check_rival(engine: Engine, row: rankers.Ranker, terms: ExperimentRequest) -> None:
    """Refuse a rival that is not there, is the ranker itself, or wants what requests do not carry."""
    against, name = terms.against, row.name
    if against == "base":
        return
    if isinstance(against, int):
        if against == row.serving:
            raise Conflict(f'ranker {name!r} serves version {against}; compare it with another one, "live" or "base"')
        usable(engine, row, against)
        return
    if against == "live":
        if row.serving is None:
            raise Conflict(f"ranker {name!r} serves what it learns; there is nothing else that is live")
        return
    if against == name:
        raise Conflict(
            f'a ranker cannot be compared with itself; against is {against!r}: give "base", a version or another'
        )
    other = engine.database.read(lambda connection: rankers.get_ranker(connection, against))
    if other is None:
        raise UnknownRanker.among("ranker", against, ["base", "live", *sorted(engine.rankers)])
    missing = [one for one in other.spec.features if isinstance(one, str) and one not in row.spec.features]
    if missing:
        raise Conflict(
            f"ranker {against!r} needs feature {missing[0]!r}, which requests to {name!r} do not carry; a rival can "
            "only use features of the ranker"
        )


def _no_experiment(connection: Connection, name: str, number: int) -> UnknownExperiment:
    known = ", ".join(str(trial.id) for trial in experiments.list_experiments(connection, name, 20)) or "none"
    return UnknownExperiment(f"ranker {name!r} has no experiment {number}; it has {known}")
