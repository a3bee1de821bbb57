"""The settings of a Personalizer resource as a ranker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankloop.core.errors import InvalidInput

WIDTH = 2**17  # columns that features are hashed into: plenty for ten thousand of them with their crosses
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


class Row(NamedTuple):
    """What became of a setting."""

    setting: str
    value: str
    becomes: str


def seconds(duration: Any) -> float:
    """Seconds of a duration as ISO 8601 writes it.

    >>> seconds("PT10M"), seconds("P1DT2H"), seconds("PT0.5S")
    (600.0, 93600.0, 0.5)
    """
    found = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if found is None or not any(found.groups()):
        raise InvalidInput(f"{duration!r} is no duration; Personalizer writes PT10M or P1D")
    days, hours, minutes, rest = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + rest


def imported(settings: Any, width: int = WIDTH) -> tuple[dict[str, Any], list[Row]]:
    """The spec of a ranker that does what a resource with these settings did, and what became of each of them; features
    are hashed into `width` columns.

    >>> spec, rows = imported({"rewardWaitTime": "PT5M", "learningMode": "Apprentice"})
    >>> spec["window_seconds"], spec["exposure"]
    (300.0, 'shadow')
    """
    if not isinstance(settings, Mapping):
        raise InvalidInput(f"settings are {type(settings).__name__}; give the object of GET /configurations/service")
    told = {"rewardWaitTime": "PT10M", "defaultReward": 0.0, "rewardAggregation": "earliest", "learningMode": "Online"}
    given: dict[str, Any] = {**told, **settings}
    rows: list[Row] = []

    def becomes(setting: str, text: str) -> None:
        rows.append(Row(setting, str(given[setting]), text))

    window = seconds(given["rewardWaitTime"])
    becomes("rewardWaitTime", f"window_seconds = {window:g}")
    default = given["defaultReward"]
    if not isinstance(default, int | float) or not 0 <= default <= 1:
        raise InvalidInput(f"defaultReward is {default!r}; rewards are from 0 to 1 here: scale them all alike")
    becomes("defaultReward", f"default_reward = {default:g}")
    aggregation = str(given["rewardAggregation"]).lower()
    if aggregation not in ("earliest", "sum"):
        raise InvalidInput(f"rewardAggregation is {given['rewardAggregation']!r}; it is earliest or sum")
    learned = "learned at once" if aggregation == "earliest" else "added up to 1 until the window ends"
    becomes("rewardAggregation", f"reward_aggregation = {aggregation}: {learned}")
    mode = str(given["learningMode"]).lower()
    if mode not in ("online", "apprentice", "loggingonly"):
        raise InvalidInput(f"learningMode is {given['learningMode']!r}; it is Online, Apprentice or LoggingOnly")
    exposure = "full" if mode == "online" else "shadow"
    why = "" if mode == "online" else ": your first action is shown, and learned from"
    becomes("learningMode", f"exposure = {exposure}{why}")
    parameters: dict[str, Any] = {}
    if "explorationPercentage" in given:
        share = given["explorationPercentage"]
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InvalidInput(f"explorationPercentage is {share!r}; it is a share, from 0 to 1")
        parameters = {"gamma": 0.0, "epsilon": float(share)}
        becomes("explorationPercentage", f"epsilon = {share:g}, gamma = 0: a random action so often, for ever")
    else:
        given["explorationPercentage"] = "not given"
        becomes("explorationPercentage", "squarecb explores the less the more it knows")
    for name in settings:
        if name not in {row.setting for row in rows}:
            becomes(name, "not there: it is about Azure, or about how its models are trained")
    spec = {
        "learner": "squarecb",
        "parameters": parameters,
        "width": width,
        "normalisation": "none",
        "k": 1,
        "exposure": exposure,
        "guardrail": None,
        "window_seconds": window,
        "default_reward": float(default),
        "reward_aggregation": aggregation,
    }
    return spec, rows
