"""How each kind of feature is computed: a function a kind, from a view of what is known to columns of numbers.

Each returns (n, c) numbers and how many values were missing, of candidates that are known at all: an unknown id is
counted once for the list (`View.unknown`), not by each feature. What stands in the place of the missing is said by the
declaration and in docs/features.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from rankloop.core.types import Array
from rankloop.features import declarations as kinds
from rankloop.features._declaration import Declaration, span
from rankloop.features.counters import CLICKS, IMPRESSIONS, LOOKS, REWARDS, Counters, family
from rankloop.features.feature_context import Lists, View
from rankloop.features.hashing import columns, text_codes
from rankloop.features.words import words
from rankloop.kernels import hashing, matching
from rankloop.kernels.fetching import fetch

Computed = tuple[Array, int]
_SUMS = {"impressions": IMPRESSIONS, "clicks": CLICKS, "rewards": REWARDS}


def sent(one: kinds.Sent, view: View) -> Computed:
    """As it came; NaN where the caller sent none, which the caller's own defaults fill."""
    found = view.request.sent.get(one.name)
    return np.full(view.n, np.nan) if found is None else np.asarray(found, np.float64), 0


def field(one: kinds.Field, view: View) -> Computed:
    """A number as it is."""
    found, missing = _filled(view.numbers(one.of), one.default, view)
    return logged(found) if one.log else found, missing


def item_fields(ones: Sequence[kinds.Field], columns: Array, places: Array, view: View, found: Array) -> Array:
    """Write the same of many fields of items into their columns at once: side by side as the table has them, a hundred
    of them cost little more than one. (m,) how many values were missing."""
    missing = np.zeros(len(ones), np.int64)
    if fetch(view.items.block, view.rows, places, columns, found):
        for m, (j, one) in enumerate(zip(columns.tolist(), ones, strict=True)):
            found[:, j], missing[m] = _filled(found[:, j], one.default, view)
    return missing


def age(one: kinds.Age, view: View) -> Computed:
    """Time since."""
    ages = np.maximum(view.request.time - view.numbers(one.of), 0.0) / span(one.unit)
    return _filled(logged(ages) if one.log else ages, one.default, view)


def time(one: kinds.Time, view: View) -> Computed:
    """A point on a circle."""
    now = datetime.fromtimestamp(view.request.time, ZoneInfo(one.zone))
    turn = (now.hour + now.minute / 60.0) / 24.0 if one.of == "hour" else now.weekday() / 7.0
    return np.tile([np.sin(2.0 * np.pi * turn), np.cos(2.0 * np.pi * turn)], (view.n, 1)), 0


def category(one: kinds.Category, view: View) -> Computed:
    """Columns of 0 and 1; all 0 where the value is missing or none of those given."""
    lists = view.crossed(one.of).of(view.n)
    found = np.zeros((view.n, one.width))
    if one.values:
        matching.one_hot(lists.offsets, lists.codes, text_codes(one.values), found)
    else:
        matching.scatter(lists.offsets, buckets(one, lists), found)
    return found, absent(lists, view)


def buckets(one: kinds.Category, lists: Lists) -> Array:
    """(m,) the column of each code of a hashed category: that of (name, value), so that two categories differ."""
    named = hashing.joined(np.full(lists.codes.size, text_codes([one.name])[0]), lists.codes)
    return columns(named, one.buckets)[0]


def match(one: kinds.Match, view: View) -> Computed:
    """What two have in common; 0 where either has nothing."""
    lists, wanted = view.lists(one.of), view.lists("query words" if one.to == "query" else one.to)
    found = matching.overlap(lists.offsets, lists.codes, wanted.codes, one.measure == "jaccard")
    return found, view.n - view.unknown if wanted.codes.size == 0 else absent(lists, view)


def text(one: kinds.Text, view: View) -> Computed:
    """Words of the query in the item's text; 0 where either has none."""
    name = one.of.removeprefix("item.")
    items = view.items
    if name not in items.fields:
        return np.zeros(view.n), view.n - view.unknown
    column = items.lists(f"{name}:words")
    asked = list(dict.fromkeys(words(view.text(one.to))))
    codes = column.vocabulary.codes(asked)
    had = column.vocabulary.uses(codes)
    idf = np.log1p((max(len(items), 1) - had + 0.5) / (had + 0.5))
    lengths = column.lengths[view.rows]
    there = column.starts[view.rows] >= 0
    usual = max(1.0, float(lengths.sum()) / max(1, int(np.count_nonzero(there))))  # of this list: what competes is here
    parts = (column.starts, column.lengths, column.pool, codes, idf, usual, one.measure == "bm25")
    missing = view.n - view.unknown if not asked else int(np.count_nonzero(view.known & ~there))
    return matching.word_match(view.rows, *parts), missing


def cosine(one: kinds.Cosine, view: View) -> Computed:
    """Of two vectors; 0 where one is missing, has another width or no length."""
    left, right = view.vectors(one.of), view.vectors(one.to)
    if left.shape[1] != right.shape[1] or left.shape[1] == 0 or len(left) != view.n:
        return np.zeros(view.n), view.n - view.unknown
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (left * right).sum(axis=1) / np.sqrt((left * left).sum(axis=1) * (right * right).sum(axis=1))
    there = np.isfinite(found)
    return np.where(there, found, 0.0), int(np.count_nonzero(view.known & ~there))


def count(one: kinds.Count, view: View) -> Computed:
    """How often; 0 of what was never counted. Of several values (a list of tags), the mean of their counts."""
    sums, lists = _summed(one, view)
    found = _per_candidate(sums[:, _SUMS[one.of]], lists)
    return logged(found) if one.log else found, absent(lists, view)


def rate(one: kinds.Rate, view: View) -> Computed:
    """Clicks a look; the mean of everything where nothing was counted. Of several values, the mean of their rates."""
    sums, lists = _summed(one, view)
    whole, what = _counters(view).total(one.window, view.request.time), _SUMS[one.of]
    mean = whole[what] / whole[LOOKS] if whole[LOOKS] > 0.0 else 0.0
    rates = (sums[:, what] + one.prior * mean) / (sums[:, LOOKS] + one.prior)
    found = _per_candidate(rates, lists)
    return np.where(lists.lengths > 0, found, mean), absent(lists, view)


def clicked(one: kinds.Clicked, view: View) -> Computed:
    """The share of this user's last clicks; 0 of a user of whom none is known."""
    lists = view.lists(one.of).of(view.n)
    user = view.lists("user").codes
    owner = int(user[0]) if user.size else 0
    found, known = _counters(view).last_clicks(one, owner, lists.offsets, lists.codes, view.request.time)
    return found, absent(lists, view) if known else view.n - view.unknown


COMPUTED: dict[type[Declaration], Callable[[Any, View], Computed]] = {
    kinds.Sent: sent,
    kinds.Field: field,
    kinds.Category: category,
    kinds.Match: match,
    kinds.Text: text,
    kinds.Age: age,
    kinds.Time: time,
    kinds.Cosine: cosine,
    kinds.Count: count,
    kinds.Rate: rate,
    kinds.Clicked: clicked,
}


def _counters(view: View) -> Counters:
    assert view.counters is not None, "a program that counts is given counters"
    return view.counters


def _summed(one: kinds.Counted, view: View) -> tuple[Array, Lists]:
    """(m, 4) sums of the codes of each candidate's lists."""
    lists = view.crossed(one.by)
    sums = _counters(view).sums(one.window, family(one.by), lists.codes, view.request.time)
    if lists.offsets.size == view.n + 1:
        return sums, lists
    return np.tile(sums, (view.n, 1)), lists.of(view.n)


def _per_candidate(values: Array, lists: Lists) -> Array:
    """(n,) the mean over each list; 0 of an empty one."""
    lengths = lists.lengths
    if lengths.size == values.size and (lengths == 1).all():
        return values
    owners = np.repeat(np.arange(lengths.size), lengths)
    return np.bincount(owners, values, lengths.size) / np.maximum(lengths, 1)


def absent(lists: Lists, view: View) -> int:
    """Known candidates without a value."""
    return int(np.count_nonzero(view.known & (lists.of(view.n).lengths == 0)))


def _filled(values: Array, default: float | str, view: View) -> Computed:
    gaps = np.isnan(values)
    if not gaps.any():
        return values, 0
    if default == "mean":
        default = float(values[~gaps].mean()) if not gaps.all() else 0.0
    return np.where(gaps, default, values), int(np.count_nonzero(gaps & view.known))


def logged(values: Array) -> Array:
    """log(1 + x), and its mirror image below 0."""
    found: Array = np.sign(values) * np.log1p(np.abs(values))
    return found
