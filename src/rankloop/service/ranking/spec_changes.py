"""What carries over when a ranker's features or scaling change: a learned state, and impressions shown earlier.

States and impressions stay in the store as they were written, and are mapped to the current spec when they are loaded,
by the names of features and the recorded renames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rankloop.core.capabilities import Remaps
from rankloop.core.errors import InvalidParameter
from rankloop.core.feature_map import FeatureMap
from rankloop.core.learner import Learner, clone
from rankloop.core.scaling import SIZES, WIDTH, StandardizedLearner, StreamScaler, standardized, unwrapped
from rankloop.core.types import Array, Impression, SparseRows
from rankloop.features.declarations import Category, declaration
from rankloop.kernels.scaling import list_moments, minmax_queries
from rankloop.service.storage.lineage import RecordedChange

Fixed = Mapping[str, Any]  # `model.fixed_part` of a spec, as JSON has it
TO_STREAM, TO_MINMAX = ("query-minmax", "stream"), ("stream", "query-minmax")


def differences(before: Fixed, after: Fixed) -> str:
    """The parts that differ and prevent carrying over; empty if only features and scaling differ."""
    parts = [name for name in ("learner", "seed", "width") if before.get(name) != after.get(name)]
    old, new = ({**one.get("parameters", {})} for one in (before, after))
    if isinstance(old.get("init"), list) and isinstance(new.get("init"), list):  # as wide as the features
        old["init"] = new["init"]
    return ", ".join(parts + ["parameters"] * (old != new))


def columns_between(before: Fixed, after: Fixed, renames: Sequence[Mapping[str, str]]) -> FeatureMap:
    """Where the columns of `after` were in `before`, by the names of features."""
    names = names_after([_name(one) for one in before["features"]], renames)
    old = [key for one, name in zip(before["features"], names, strict=True) for key in _columns(one, name)]
    places = {key: place for place, key in enumerate(old) if key[0] is not None}
    new = [key for one in after["features"] for key in _columns(one, _name(one))]
    return FeatureMap.of([places.get(key, -1) for key in new], len(old))


def names_after(names: Sequence[str], renames: Sequence[Mapping[str, str]]) -> list[str | None]:
    """The names of features after some changes; None for a removed one, whose name another feature took."""
    found: list[str | None] = list(names)
    for renamed in renames:
        taken = {new for old, new in renamed.items() if old in found}
        found = [None if name is None or (name in taken and name not in renamed) else renamed.get(name, name)
                 for name in found]  # fmt: skip
    return found


def renames_since(fixed: Fixed, changes: Sequence[RecordedChange]) -> list[Mapping[str, str]]:
    """The renames since a state with this fixed part was learned, from the last change that ended such a spec."""
    last = max((i for i, one in enumerate(changes) if one.before == fixed), default=len(changes))
    return [one.renamed for one in changes[last:]]


def carried_state(
    old: Learner, before: Fixed, after: Fixed, changes: Sequence[RecordedChange], what: str
) -> dict[str, Array]:
    """The state of a learner of another spec, for a learner of the current one; modifies `old`."""
    if differs := differences(before, after):
        raise InvalidParameter(f"{what} belongs to another spec: other {differs}, not only features or scaling")
    inner = unwrapped(old)
    if not inner.contextual:
        return old.state()
    if not isinstance(inner, Remaps):
        raise InvalidParameter(
            f"{what} has other features, and learner {before['learner']!r} carries nothing over to other features"
        )
    columns = columns_between(before, after, renames_since(before, changes))
    scaler = old.scaler if isinstance(old, StandardizedLearner) else StreamScaler()
    inner.remap(_on_scale(columns, before["normalization"], after["normalization"], scaler))
    if after["normalization"] != "stream":
        return inner.state()
    made = standardized(clone(inner))
    made.inner, made.scaler = inner, scaler.remapped(columns)
    found: dict[str, Array] = made.state()
    return found


def carried_features(before: Fixed, after: Fixed, renamed: Mapping[str, str]) -> list[str]:
    """The features of `after` of which something carries over."""
    if not _scales_carry(before["normalization"], after["normalization"]):
        return []
    known = columns_between(before, after, [renamed]).source >= 0
    owners = [_name(one) for one in after["features"] for _ in _columns(one, "")]
    return list(dict.fromkeys(name for name, there in zip(owners, known.tolist(), strict=True) if there))


def _scales_carry(before: str, after: str) -> bool:
    return before == after or (before, after) in (TO_STREAM, TO_MINMAX, ("stream", "none"))


def scaling_rule(before: str, after: str) -> str:
    """A line about what another scaling does to what was learned."""
    if (before, after) == ("stream", "none"):
        return "weights are divided by the sizes that were learned"
    if _scales_carry(before, after):
        return "weights stay, as if features were spread evenly between their minimum and maximum"
    return f"sizes are not known, so from {before} to {after} every feature starts from its prior"


def _on_scale(columns: FeatureMap, before: str, after: str, scaler: StreamScaler) -> FeatureMap:
    """The map with the effect of another scaling on values. Where that is unknown, columns start over."""
    if before == after or (before, after) in (TO_STREAM, TO_MINMAX):
        return columns
    if (before, after) == ("stream", "none") and scaler.lists:
        spread = columns.weights(scaler.spread, power=0)
        return FeatureMap.of(np.where(spread > 0.0, columns.source, -1), columns.before, _inverse(spread))
    return columns._replace(source=np.full(columns.source.size, -1))


def _inverse(spread: Array) -> Array:
    return np.asarray(1.0 / np.where(spread > 0.0, spread, 1.0))


class CarriedImpressions:
    """Impressions of an earlier spec, for a learner of the current one.

    A new feature is constant, so it gets no weight from them. Min-max and stream scaling are converted by the sizes of
    the ranking; raw values cannot be recovered from min-max ones, so there only the memory of queries learns.
    """

    def __init__(self, learner: Learner, after: Fixed, changes: Sequence[RecordedChange]) -> None:
        before = changes[0].before
        if differs := differences(before, after):
            raise InvalidParameter(f"the impression was shown with another spec (other {differs})")
        self._columns = columns_between(before, after, [one.renamed for one in changes])
        self._scaling = before["normalization"], after["normalization"]
        self._learner: Any = unwrapped(learner)

    def carried(self, impression: Impression) -> Impression:
        """The impression with features in the current columns and on the current scale."""
        columns, rows, memo = self._columns, impression.features, dict(impression.memo)
        if hasattr(self._learner, "remap_memo") and not columns.identity:
            memo = self._learner.remap_memo(memo, columns)
        if isinstance(rows, SparseRows):
            return impression._replace(features=columns.sparse(rows), memo=memo)
        if rows is None:
            return impression._replace(memo=memo)
        sizes = memo.pop(SIZES, None)
        made, noted = self._scaled(columns.rows(rows), sizes)
        if noted is not None:
            memo[SIZES] = noted
        return impression._replace(features=np.ascontiguousarray(made), memo=memo)

    def _scaled(self, rows: Array, sizes: Array | None) -> tuple[Array, Array | None]:
        """(k, d) rows on the current scale and, if it is stream, (2, d) sizes; NaN where they are scaled already."""
        before, after = self._scaling
        new = self._columns.source < 0
        if before == "stream" and sizes is not None:
            sizes = self._columns.weights(sizes, np.nan, power=0)
        if before == after or (before, after) == ("stream", "none"):
            return rows, sizes if after == "stream" else None
        if (before, after) == TO_STREAM:
            return np.where(new, 0.0, rows - 0.5), np.full((2, new.size), np.nan)
        if (before, after) == TO_MINMAX and sizes is not None:
            middle, spread = sizes
            scaled = np.clip(0.5 + (rows - middle) * _inverse(WIDTH * spread), 0.0, 1.0)
            return np.where(spread > 0.0, scaled, 0.0), None
        if (before, after) == ("none", "stream"):
            return rows, np.where(new, np.nan, np.stack(list_moments(rows)))
        if (before, after) == ("none", "query-minmax"):
            scaled = rows.copy()
            minmax_queries(scaled, np.array([0, len(rows)]))
            return scaled, None
        return np.zeros_like(rows), None


def _name(given: str | Mapping[str, Any]) -> str:
    return given if isinstance(given, str) else str(given["name"])


def _columns(given: str | Mapping[str, Any], name: str | None) -> list[tuple[str | None, str]]:
    """The columns of a feature by meaning: those of a category by value, those of a hash by their number."""
    one = declaration(given)
    if isinstance(one, Category):
        ends = one.values or [f"#{j} of {one.buckets}" for j in range(one.buckets)]
        return [(name, end) for end in ends]
    return [(name, column.removeprefix(one.name)) for column in one.columns]
