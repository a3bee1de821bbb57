"""`rankloop learners` and `rankloop check`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter
from rich.markup import escape

from rankloop.cli import _out


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(learners)
    app.command(check)


def learners(*, published: bool = False, json: bool = False) -> None:
    """List the learners: name, family, what feedback they take, whether they use features.

    Parameters
    ----------
    published
        List the published configurations, such as `pairrank@paper`, which are taken wherever a learner is named:
        where each comes from, and what it sets otherwise than our default.
    json
        Print JSON, with the parameters of each and their defaults.
    """
    from rankloop.core.learner import params
    from rankloop.core.registry import LEARNERS, learner_class, make

    if published:
        _published(json)
        return
    listed = [
        {
            "name": name,
            "family": entry.family,
            "feedback": learner_class(name).feedback,
            "contextual": learner_class(name).contextual,
            "summary": entry.summary,
            "params": params(make(name)),
        }
        for name, entry in LEARNERS.items()
    ]
    if json:
        _out.print_json(listed)
        return
    columns = ("name", "family", "feedback", "contextual", "summary")
    rows = [[_shown(learner[column]) for column in columns] for learner in listed]
    _out.print_table("Learners", ["name", "family", "learns from", "uses features", ""], rows, numbers_from=9)


def _published(json: bool) -> None:
    from rankloop.core.presets import PUBLISHED
    from rankloop.core.registry import differences

    if json:
        _out.print_json(
            [
                {
                    "name": name,
                    **found._asdict(),
                    "differs": {
                        key: {"default": ours, "published": its} for key, (ours, its) in differences(name).items()
                    },
                }
                for name, found in PUBLISHED.items()
            ]
        )
        return
    rows = []
    for name, found in PUBLISHED.items():
        told = [f"{key}={_shown(its)} (not {_shown(ours)})" for key, (ours, its) in differences(name).items()]
        told += [f"{need}: yours to give" for need in found.needs]
        rows.append([name, found.source, ", ".join(told) or "nothing", found.note])
    _out.print_table(
        "Published configurations", ["name", "source", "differs from our default", "to know"], rows, numbers_from=9
    )


def check(
    learner: str,
    *,
    param: Annotated[list[str] | None, Parameter(negative=())] = None,
    json: bool = False,
) -> None:
    """Run the contract that every learner must keep, rule by rule. Exit code 1 if a rule is broken.

    Parameters
    ----------
    learner
        A name from `rankloop learners`, with parameters if wanted: `pairrank?alpha=0.1`; or a published one.
    param
        A parameter as name=value; may be repeated.
    json
        Print JSON.
    """
    from rankloop.checks import yield_checks
    from rankloop.cli.lab import parsed_learners
    from rankloop.core.registry import entry_of, make

    # a wrong name or value is one error here, not twenty broken rules below
    ((learner, parameters),) = parsed_learners([learner], param)
    _out.say_when_compiling()
    outcomes = []
    for outcome in yield_checks(lambda: make(learner, **parameters), learns=entry_of(learner).learns):
        outcomes.append(outcome)
        if not json:
            mark = "[green]    ok[/green]" if outcome.error is None else "[red]BROKEN[/red]"
            _out.output.print(mark, escape(outcome.rule), soft_wrap=True)
            if outcome.error:
                _out.output.print("      ", escape(outcome.error), soft_wrap=True)
    broken = [outcome for outcome in outcomes if outcome.error]
    if json:
        _out.print_json({"learner": learner, "ok": not broken, "checks": [outcome._asdict() for outcome in outcomes]})
    else:
        print(f"{learner}: {len(outcomes) - len(broken)} of {len(outcomes)} rules hold")
    if broken:
        sys.exit(1)


def _shown(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
