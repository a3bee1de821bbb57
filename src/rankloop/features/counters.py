"""Counts of impressions and clicks over windows of time: a bounded fold over outcomes.

Each impression stores notes for it (`FeaturePipeline.notes`): codes of its items, fields, query and user, and its swap
shares. So the fold needs nothing but the log. Clicks on an impression are never in its own features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

from rankloop.core import codec
from rankloop.core.errors import CodecError
from rankloop.core.types import Array
from rankloop.evaluation.position_bias import ExaminationModel
from rankloop.features.declarations import Clicked, Counted, Declaration, span
from rankloop.features.hashing import text_codes
from rankloop.features.keyed import KeyedRows
from rankloop.kernels import counting
from rankloop.kernels.hashing import joined

PARTS = 8  # time buckets of a window: the current one and the seven before it
IMPRESSIONS, EXAMINATIONS, CLICKS, REWARDS = range(4)  # columns of sums
CAPACITY = 100_000  # keys per window
_TOTAL = np.zeros(1, np.uint64)  # the key of the total


class CountedOutcome(NamedTuple):
    """A closed impression as counters see it."""

    time: float  # when it was closed, Unix seconds
    values: Array  # (m,) clicks or rewards from the top
    notes: Mapping[str, Array]  # `Program.notes`
    seen: int | None = None  # positions viewed; None: unknown, all of them count


class Counters:
    """The counts that declarations need. `fold` is the only mutator; a lock lets one thread fold and another read.

    Parameters
    ----------
    declarations
        Of the ranker; those that do not count are ignored.
    capacity
        Keys per window. When full, the least recently used eighth is evicted.

    Examples
    --------
    >>> from rankloop.features.declarations import declaration
    >>> counters = Counters([declaration({"name": "ctr", "kind": "rate", "by": "item", "window": "1d"})])
    >>> a = text_codes(["a"])
    >>> counters.fold(CountedOutcome(0.0, np.ones(1), {"by/item": a, "at/item": np.array([0, 1])}))
    >>> counters.sums("1d", "item", a, 0.0)[0]  # impressions, examinations, clicks, rewards
    array([1., 1., 1., 1.])
    >>> counters.sums("1d", "item", a, 86400.0)[0]  # a day later
    array([0., 0., 0., 0.])
    """

    def __init__(self, declarations: Iterable[Declaration], capacity: int = CAPACITY) -> None:
        families: dict[str, set[str]] = {}
        rings: dict[str, int] = {}
        for one in declarations:
            if isinstance(one, Counted):
                families.setdefault(one.window, set()).add(family(one.by))
            elif isinstance(one, Clicked):
                rings[one.of] = max(rings.get(one.of, 0), one.last)
        self.examination = ExaminationModel()
        self.folded = 0  # outcomes
        self.late = 0  # amounts that came after their bucket was reused
        self._families = {window: sorted(names) for window, names in sorted(families.items())}
        self._windows = {
            window: KeyedRows(
                capacity,
                numbers=((_parts(window),), np.int64),
                sums=((_parts(window), 4), np.float64),
            )
            for window in self._families
        }
        self._rings = {
            of: KeyedRows(capacity, values=((last,), np.uint64), times=((last,), np.float64), ends=((), np.int64))
            for of, last in sorted(rings.items())
        }
        self._codes = {name: text_codes([name]) for names in families.values() for name in names}
        self._lock = Lock()

    @property
    def evicted(self) -> int:
        """Number of keys evicted."""
        return sum(rows.evicted for rows in self._all().values())

    @property
    def keys(self) -> int:
        """Number of keys counted now."""
        return sum(rows.size for rows in self._all().values())

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(rows.nbytes for rows in self._all().values())

    # -- the fold --------------------------------------------------------------------------------------------------

    def fold(self, outcome: CountedOutcome) -> None:
        """Count one outcome."""
        notes, values = outcome.notes, np.asarray(outcome.values, np.float64)
        with self._lock:
            self.folded += 1
            k = max([_slots(notes, name) for name in notes if name.startswith("at/")], default=len(values))
            clicked = np.flatnonzero(values[:k] > 0.0)
            m = k if outcome.seen is None else min(k, max([outcome.seen, *(clicked[-1:] + 1)]))
            amounts = np.zeros((k, 4))
            amounts[:m, IMPRESSIONS] = 1.0
            amounts[:m, EXAMINATIONS] = self.examination.examination(m)
            amounts[clicked, CLICKS], amounts[clicked, REWARDS] = 1.0, values[clicked]
            owner = int(notes["user"][0]) if "user" in notes else 0
            for window, names in self._families.items():
                bucket, rows = _bucket(window, outcome.time), self._windows[window]
                whole = amounts.sum(axis=0)[None]
                self.late += counting.add(rows.touch(_TOTAL, 0), whole, rows["numbers"], rows["sums"], bucket)
                for name in names:
                    self._count(rows, name, notes, amounts, owner if "user" in name.split(",") else 0, bucket)
            if owner and clicked.size:
                for of, rows in self._rings.items():
                    self._remember(rows, of, notes, clicked, owner, outcome.time)
            if "shares" in notes:  # last, so that examination is that before this impression
                self.examination.learn(amounts[:m, CLICKS], np.asarray(notes["shares"], np.float64))

    def _count(
        self, rows: KeyedRows, name: str, notes: Mapping[str, Array], amounts: Array, owner: int, bucket: int
    ) -> None:
        codes = notes.get(f"by/{name}")
        if codes is None or codes.size == 0:
            return
        offsets = notes.get(f"at/{name}")
        if offsets is None:  # not per item: one impression
            amounts = amounts.sum(axis=0)[None]
            amounts[0, IMPRESSIONS] = 1.0
        else:
            amounts = counting.spread_amounts(offsets, amounts)
        there = rows.touch(self._keys(name, codes), owner)
        self.late += counting.add(there, amounts, rows["numbers"], rows["sums"], bucket)

    def _remember(
        self, rows: KeyedRows, of: str, notes: Mapping[str, Array], clicked: Array, owner: int, time: float
    ) -> None:
        codes, offsets = notes.get(f"by/{of}"), notes.get(f"at/{of}")
        if codes is None or offsets is None:
            return
        row = int(rows.touch(np.array([owner], np.uint64), owner)[0])
        for slot in clicked.tolist():
            liked = codes[offsets[slot] : offsets[slot + 1]]
            counting.push(row, liked, time, rows["values"], rows["times"], rows["ends"])

    # -- what features read ----------------------------------------------------------------------------------------

    def sums(self, window: str, name: str, codes: Array, time: float) -> Array:
        """Return (n, 4) impressions, examinations, clicks and rewards in the window ending now; 0 for unknown codes."""
        with self._lock:
            rows = self._windows[window]
            there = rows.find(self._keys(name, codes))
            return counting.within(there, rows["numbers"], rows["sums"], _bucket(window, time))

    def total(self, window: str, time: float) -> Array:
        """Return (4,) the total of everything shown."""
        with self._lock:
            rows = self._windows[window]
            found = counting.within(rows.find(_TOTAL), rows["numbers"], rows["sums"], _bucket(window, time))
        total: Array = found[0]
        return total

    def last_clicks(self, one: Clicked, user: int, offsets: Array, codes: Array, time: float) -> tuple[Array, bool]:
        """Return (n,) the share of a user's last clicks with each candidate's codes, and whether there are any."""
        with self._lock:
            rows = self._rings[one.of]
            row = int(rows.find(np.array([user], np.uint64))[0]) if user else -1
            parts = (rows["values"], rows["times"], rows["ends"])
            return counting.share_of_last(row, one.last, time - span(one.window), *parts, offsets, codes), row >= 0

    # -- keeping it ------------------------------------------------------------------------------------------------

    def forget(self, user: str) -> int:
        """Delete the keys of one user and return their number. Items keep their counts."""
        return self.forget_code(int(user_code(user)[0]))

    def forget_code(self, code: int) -> int:
        """Delete the keys of a user code."""
        with self._lock:
            return sum(rows.forget(code) for rows in self._all().values())

    def dumps(self) -> bytes:
        """Return everything as bytes that `loads` restores bit for bit."""
        with self._lock:
            parts: dict[str, KeyedRows | ExaminationModel] = {**self._all(), "attention": self.examination}
            arrays = {f"{part}/{name}": value for part, one in parts.items() for name, value in one.state().items()}
            meta = {"folded": self.folded, "late": self.late, "counted": self.counted}
        return codec.dumps(arrays, meta)

    def loads(self, data: bytes) -> None:
        """Restore the bytes of counters with the same declarations."""
        arrays, meta = codec.loads(data, "the counters")
        if meta.get("counted") != self.counted:
            raise CodecError("these counters are of other declarations; count the log again")
        with self._lock:
            parts: dict[str, KeyedRows | ExaminationModel] = {**self._all(), "attention": self.examination}
            for part, one in parts.items():
                prefix = f"{part}/"
                own = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
                one.load(own)
            self.folded, self.late = int(meta["folded"]), int(meta["late"])

    @property
    def counted(self) -> list[list[str]]:
        """What it counts, ready for JSON: states are compatible if this is equal."""
        rings = [f"{of} {rows['values'].shape[1]}" for of, rows in self._rings.items()]
        return [[window, *names] for window, names in self._families.items()] + [rings]

    def _all(self) -> dict[str, KeyedRows]:
        windows = {f"window {window}": rows for window, rows in self._windows.items()}
        return {**windows, **{f"last {of}": rows for of, rows in self._rings.items()}}

    def _keys(self, name: str, codes: Array) -> Array:
        return joined(np.full(codes.size, self._codes[name][0]), codes)


def family(by: Sequence[str]) -> str:
    """Return the name of a count by these sources in notes.

    >>> family(["item", "query"])
    'item,query'
    """
    return ",".join(by)


def user_code(user: str) -> Array:
    """Return (1,) uint64 the code of a user; never 0, which means no user."""
    code = text_codes([user])
    return np.maximum(code, np.uint64(1))


def _slots(notes: Mapping[str, Array], name: str) -> int:
    return int(notes[name].size) - 1


def _parts(window: str) -> int:
    return 1 if window == "all" else PARTS


def _bucket(window: str, time: float) -> int:
    return 0 if window == "all" else int(time // (span(window) / PARTS))
