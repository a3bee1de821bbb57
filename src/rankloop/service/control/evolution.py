"""How specs change: which fields a request sets, which features are renamed, and what the answer says about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rankloop.core.capabilities import Remaps
from rankloop.core.errors import InvalidParameter
from rankloop.core.learner import Learner
from rankloop.core.scaling import unwrapped
from rankloop.service.ranking import spec_changes
from rankloop.service.ranking.feature_spec import declarations
from rankloop.service.ranking.model import fixed_part
from rankloop.service.storage.lineage import Change
from rankloop.wire.rankers import Spec, SpecChange, SpecChanges


def merged(present: Spec | None, changes: SpecChanges, renamed: Mapping[str, str]) -> Spec:
    """The spec after a request: what it leaves out keeps its value, and in a new ranker has its default.

    So do `parameters` that it leaves out, unless it names another learner, and `defaults` of features that stay.
    Where a reward is declared, or no longer, a click has its default value again.
    """
    given: dict[str, Any] = {
        name: value for name in Spec.__struct_fields__ if (value := getattr(changes, name)) is not msgspec.UNSET
    }
    if present is None:
        return Spec(**given)
    if given.get("learner", present.learner) != present.learner:
        present = msgspec.structs.replace(present, parameters={})
    if (present.reward is None) != (given.get("reward", present.reward) is None):
        present = msgspec.structs.replace(present, click_reward=None)
    if "parameters" in given:
        given["parameters"] = {**present.parameters, **given["parameters"]}
    if "features" in given and "defaults" not in given:
        there = {one if isinstance(one, str) else one.get("name") for one in given["features"]}
        known = {renamed.get(name, name): value for name, value in present.defaults.items()}
        given["defaults"] = {name: value for name, value in known.items() if name in there}
    return msgspec.structs.replace(present, **given)


def fields(before: Spec, after: Spec) -> list[str]:
    """The fields that differ."""
    return [name for name in Spec.__struct_fields__ if getattr(before, name) != getattr(after, name)]


def change(before: Spec, after: Spec, renamed: Mapping[str, str]) -> Change | None:
    """The change of what learned states depend on; None if that stays."""
    old, new = (msgspec.to_builtins(fixed_part(one)) for one in (before, after))
    applied = _applied([one.name for one in declarations(before)], [one.name for one in declarations(after)], renamed)
    return None if old == new else Change(old, new, applied)


def answer(before: Spec, after: Spec, made: Change, learner: Learner) -> SpecChange:
    """What a request changed, for its answer; `learner` is the one that everything was carried over to."""
    old, new = ([one.name for one in declarations(spec)] for spec in (before, after))
    names = spec_changes.names_after(old, [made.renamed])
    carried = set(spec_changes.carried_features(made.before, made.after, made.renamed))
    plain = unwrapped(learner)
    rule: str | None = "everything: this learner does not use features"
    if plain.contextual:
        rule = plain.carries if isinstance(plain, Remaps) else None
        if made.before["normalisation"] != made.after["normalisation"]:
            rule = f"{rule}; {spec_changes.scaling_rule(made.before['normalisation'], made.after['normalisation'])}"
    return SpecChange(
        fields(before, after),
        carried=[name for name in new if name in carried],
        renamed=made.renamed,
        added=[name for name in new if name not in carried],
        removed=[name for name, now in zip(old, names, strict=True) if now not in new],
        rule=rule,
    )


def _applied(before: list[str], after: list[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """The renames that a change makes, by final names. What an earlier request made already is left out, so that the
    same request can be sent again."""
    final = {}
    for old, new in renamed.items():
        names = [old, new]
        while names[-1] in renamed and names[-1] not in names[:-1]:
            names.append(renamed[names[-1]])
        if names[-1] in names[:-1]:
            raise InvalidParameter(f"renamed goes in a circle at {old!r}; rename in two steps, over a third name")
        final[old] = next((name for name in names[1:] if name in after), new)
    applied = {old: new for old, new in final.items() if old in before}
    while done := [old for old, new in applied.items() if new in before and new not in applied]:
        for old in done:
            del applied[old]
    for old, new in final.items():
        if old in applied and new not in after:
            raise InvalidParameter(f"renamed says that {old!r} is {new!r} now, which is not among the features")
        if old not in before and new in after and new not in before and new not in applied.values():
            raise InvalidParameter(f"renamed has {old!r}, which is not a feature of the ranker; it has {before}")
    if len(set(applied.values())) < len(applied):
        raise InvalidParameter(f"renamed gives two features the same name: {dict(renamed)}")
    return applied
