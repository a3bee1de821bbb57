"""State per query for learners that know items by id: a bounded table of queries in plain arrays.

A learner declares the numbers it keeps per query, per item of a query and per pair of items (`Column`). Queries are
identified by 64-bit hashes, items by their integer id or a 62-bit hash of a string. When the table is full, the query
or item that was learned from the longest ago is replaced; ranking changes nothing. Arrays double when they are full,
and are compacted when half of them is unused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np

from rankloop.core.capabilities import Explanation, Report
from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.core.learner import require, require_number
from rankloop.core.types import Array, Impression
from rankloop.kernels import queries as kernels


class Column(NamedTuple):
    """A number that a learner keeps per query, item or pair of items, and its initial value.

    The pair of items i < j is entry j (j - 1) / 2 + i of a query's pairs, so new items append their pairs.
    """

    per: Literal["query", "item", "pair"]
    dtype: Any = np.int32
    initial: float = 0
    holds: Literal["", "permutation", "numbers"] = ""  # of item numbers, which kernels do not check: `load` does


class Entered(NamedTuple):
    """Where the items of an impression are in the table."""

    slot: int
    numbers: Array  # (n,) the item's number in its query, -1: there was no room for it
    fresh: Array  # (n,) whether the item is new in the table


_TABLE = {  # what the table itself keeps
    "queries": Column("query", np.int64),  # hash of the query
    "rounds": Column("query", np.int64),  # how often it was learned from
    "sizes": Column("query", np.int32),  # number of items
    "rooms": Column("query", np.int32),  # number of items that fit into its block
    "starts": Column("query", np.int64),  # where its items begin
    "older": Column("query", np.int32, -1),  # the query learned from just before it
    "newer": Column("query", np.int32, -1),  # and just after it
    "items": Column("item", np.int64),  # the id or its hash
    "seen": Column("item", np.int32),  # the round of the query in which it was last learned from
}
_PAIRED = {"pair_starts": Column("query", np.int64)}  # where a query's pairs begin
_PLACES = ("rooms", "starts", "pair_starts", "older", "newer")  # where a query is: differs between copies of a table


def require_bounds(max_queries: object, max_items: object) -> None:
    """Refuse bounds that are not whole numbers of at least 1."""
    for name, value in (("max_queries", max_queries), ("max_items", max_items)):
        require_number(name, value, 1)
        require(isinstance(value, int) and value < 2**31, name, value, "must be a whole number below 2**31")


def item_codes(items: Array) -> Array:
    """(n,) int64: integer ids as they are, hashes of strings."""
    if items.dtype.kind != "U":
        return items
    if not (items.dtype.isnative and items.flags.c_contiguous):
        items = np.ascontiguousarray(items, items.dtype.newbyteorder("="))
    return kernels.fingerprints(items.view(np.int32), items.size)


@lru_cache(maxsize=10_000)  # looked up to rank and again to learn
def query_hash(query: str) -> int:
    """64 bits of a query, the same on every machine."""
    digest = blake2b(query.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def memo_integers(impression: Impression, name: str, size: int | None = None) -> Array:
    """Whole numbers of the impression's memo, `size` of them if given; kernels do not check."""
    value = impression.memo.get(name)
    if value is None or value.dtype != np.int64 or value.ndim != 1 or size not in (None, value.size):
        found = "nothing" if value is None else f"{value.dtype} of shape {value.shape}"
        wanted = "in one row" if size is None else f"of shape ({size},)"
        raise InvalidInput(
            f"the impression's memo has {found} as {name!r}, not int64 {wanted}; "
            "learn from what this kind of learner has ranked"
        )
    return value


def pair_count(items: Any) -> Any:
    """How many pairs so many items make."""
    return items * (items - 1) // 2


def _same(items: Any) -> Any:
    return items


# A query's block of items and its block of pairs: where they begin, how long they are for so many items.
_Block = tuple[str, str, Callable[[Any], Any]]
_BLOCKS: tuple[_Block, ...] = (("item", "starts", _same), ("pair", "pair_starts", pair_count))


class QueryTable:
    """A table of queries, their items and the pairs of these.

    Examples
    --------
    >>> table = QueryTable({"clicks": Column("item")}, max_queries=2, max_items=3)
    >>> slot, numbers, fresh = table.enter("shoes", np.array([7, 8]))
    >>> (clicks,) = table.values(slot)
    >>> clicks[numbers[1]] += 1
    >>> table.values(table.find("shoes"))[0].tolist(), table.numbers(slot, np.array([9, 8])).tolist()
    ([0, 1], [-1, 1])
    >>> table.find("socks")
    -1
    """

    def __init__(self, columns: Mapping[str, Column], max_queries: int, max_items: int) -> None:
        self.columns = dict(columns)
        self.max_queries, self.max_items = max_queries, max_items
        self.slots: dict[int, int] = {}
        self.ends = np.array([kernels.NONE, kernels.NONE])  # the query learned from the longest ago, and the last one
        paired = any(column.per == "pair" for column in columns.values())
        self._every = {**_TABLE, **(_PAIRED if paired else {}), **columns}
        self._by = {per: [n for n, f in self._every.items() if f.per == per] for per in ("query", "item", "pair")}
        self._blocks = _BLOCKS if paired else _BLOCKS[:1]
        self.arrays: dict[str, Array] = {name: np.empty(0, column.dtype) for name, column in self._every.items()}
        self.used = {"query": 0, "item": 0, "pair": 0}  # entries of the arrays that are in use, holes among them
        self.live = {"item": 0, "pair": 0}  # those without the holes

    # -- looking: changes nothing --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.slots)

    def find(self, query: str) -> int:
        """The query's slot, -1 if it is not known."""
        return self.slots.get(query_hash(query), kernels.NONE)

    def rounds(self, slot: int) -> int:
        """How often a query was learned from; 0 for slot -1."""
        return self.arrays["rounds"].item(slot) if slot >= 0 else 0

    def items(self, slot: int) -> Array:
        """(m,) ids or fingerprints of a query's items, by number; empty for slot -1."""
        return self.item_values(slot, "items")[0] if slot >= 0 else self.arrays["items"][:0]

    def numbers(self, slot: int, codes: Array) -> Array:
        """(n,) each item's number in its query, -1 if it is not known."""
        return kernels.match(self.items(slot), codes)

    def values(self, slot: int) -> tuple[Array, ...]:
        """Views of a query's fields in the order in which they were declared: (1,), (m,) or (m (m - 1) / 2,).

        They are good until the next `enter` or `load`. Slot -1 is a query without items, with start values.
        """
        if slot < 0:
            sizes = {"query": 1, "item": 0, "pair": 0}
            return tuple(np.full(sizes[column.per], column.initial, column.dtype) for column in self.columns.values())
        arrays, size = self.arrays, self.arrays["sizes"].item(slot)
        where = {"query": slice(slot, slot + 1)}
        for per, starts, count in self._blocks:
            start = arrays[starts].item(slot)
            where[per] = slice(start, start + count(size))
        return tuple([arrays[name][where[column.per]] for name, column in self.columns.items()])

    def item_values(self, slot: int, *names: str) -> list[Array]:
        """Views of the numbers that each item of a known query has, by name; `items` are its ids or fingerprints."""
        arrays, start = self.arrays, self.arrays["starts"].item(slot)
        mine = slice(start, start + arrays["sizes"].item(slot))
        return [arrays[name][mine] for name in names]

    def bytes_of(self, items: int) -> int:
        """What a query with so many items costs, without the dictionary's entry."""
        counts = {"query": 1, "item": items, "pair": pair_count(items)}
        return sum(counts[column.per] * np.dtype(column.dtype).itemsize for column in self._every.values())

    # -- learning ------------------------------------------------------------------------------------------------

    def enter(self, query: str, codes: Array) -> Entered:
        """Make `query` the one learned from last, with one round more and with all these items; evict if need be."""
        code = query_hash(query)
        slot = self.slots.get(code, kernels.NONE)
        if slot == kernels.NONE:
            slot = self._admit(code, min(len(codes), self.max_items))
        arrays = self.arrays
        known, seen = self.item_values(slot, "items", "seen")
        numbers, fresh, missing = kernels.revisit(
            known, seen, codes, arrays["rounds"], arrays["older"], arrays["newer"], self.ends, slot
        )
        if missing:
            self._add(slot, codes, numbers)
            fresh &= numbers >= 0
            kernels.stamp(self.item_values(slot, "seen")[0], numbers, arrays["rounds"].item(slot))
        return Entered(slot, numbers, fresh)

    def set_rounds(self, slot: int, rounds: int) -> None:
        """Say how often a query was learned from, each time with all its items: how a compiled loop ends."""
        self.arrays["rounds"][slot] = rounds
        self.item_values(slot, "seen")[0][:] = rounds

    def _admit(self, code: int, room: int) -> int:
        """A slot for a new query, with room for so many items and none in it."""
        arrays, old = self.arrays, 0
        if len(self.slots) < self.max_queries:
            slot = self._take("query", 1)
        else:
            slot = int(self.ends[0])
            del self.slots[int(arrays["queries"][slot])]
            kept = {n: arrays[n][slot] for n in _PLACES if n in arrays}
            self._reset("query", slice(slot, slot + 1))
            for name, value in kept.items():
                arrays[name][slot] = value
            old = int(arrays["rooms"][slot])
        self.arrays["queries"][slot] = code
        self.slots[code] = slot
        if not old // 2 < room <= old:  # its block is too small, or so large that most of its pairs would be wasted
            self._give_block(slot, room)
        return slot

    def _add(self, slot: int, codes: Array, numbers: Array) -> None:
        """Number the items that have none yet (-1 in `numbers`), which is changed; those for which no room is stay."""
        arrays, missing = self.arrays, np.flatnonzero(numbers < 0)
        size = int(arrays["sizes"][slot])
        grown = min(size + missing.size, self.max_items)
        if grown > arrays["rooms"][slot]:
            room = int(arrays["rooms"][slot])
            self._give_block(slot, min(max(grown, room + room // 2), self.max_items))
        for per, starts, count in self._blocks:
            start = int(arrays[starts][slot])
            self._reset(per, slice(start + count(size), start + count(grown)))
        arrays["sizes"][slot] = grown
        start, free = int(arrays["starts"][slot]), np.arange(size, grown)
        if free.size < missing.size:
            absent = np.ones(size, np.bool_)
            absent[numbers[numbers >= 0]] = False
            by_age = np.argsort(arrays["seen"][start : start + size], kind="stable")
            replaced = by_age[absent[by_age]][: missing.size - free.size]
            for number in replaced.tolist():
                self._forget(slot, number)
            free = np.concatenate([free, replaced])
        missing = missing[: free.size]
        numbers[missing] = free
        arrays["items"][start + free] = codes[missing]

    def _forget(self, slot: int, number: int) -> None:
        """Start values for an item and its pairs."""
        at = int(self.arrays["starts"][slot]) + number
        self._reset("item", slice(at, at + 1))
        if self._by["pair"]:
            others = np.delete(np.arange(self.arrays["sizes"][slot]), number)
            low, high = np.minimum(others, number), np.maximum(others, number)
            self._reset("pair", self.arrays["pair_starts"][slot] + pair_count(high) + low)

    # -- space ---------------------------------------------------------------------------------------------------

    def _take(self, per: str, count: int) -> int:
        """Where `count` new entries begin; arrays double when they are full."""
        begin = self.used[per]
        end = begin + count
        for name in self._by[per]:
            array = self.arrays[name]
            if end > array.size:
                self.arrays[name] = np.empty(max(end, 2 * array.size), array.dtype)
                self.arrays[name][:begin] = array[:begin]
        self.used[per] = end
        self._reset(per, slice(begin, end))
        return begin

    def _reset(self, per: str, where: Any) -> None:
        for name in self._by[per]:
            self.arrays[name][where] = self._every[name].initial

    def _give_block(self, slot: int, room: int) -> None:
        """Move a query's items and pairs to a new block at the end; what it leaves behind is a hole."""
        arrays = self.arrays
        old, size = int(arrays["rooms"][slot]), int(arrays["sizes"][slot])
        for per, where, count in self._blocks:
            source, begin = int(arrays[where][slot]), self._take(per, count(room))
            for name in self._by[per]:
                array = arrays[name]
                array[begin : begin + count(size)] = array[source : source + count(size)]
            arrays[where][slot] = begin
            self.live[per] += count(room) - count(old)
        arrays["rooms"][slot] = room
        if self.used["item"] > 2 * self.live["item"] or self.used["pair"] > 2 * self.live["pair"]:
            self._pack()

    def _pack(self) -> None:
        """Close the holes: at most half of the table is ever moved for as much that was added."""
        rooms = self.arrays["rooms"][: self.used["query"]].astype(np.int64)
        for per, where, count in self._blocks:
            counts = count(rooms)
            starts = self.arrays[where][: self.used["query"]]
            order = np.argsort(starts, kind="stable")
            for name in self._by[per]:
                kernels.pack(self.arrays[name], starts, counts, order)
            ends = np.cumsum(counts[order])
            starts[order] = ends - counts[order]
            self.used[per] = int(ends[-1])

    # -- saving --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        """Copies of all arrays."""
        return {f"{name}_": self.arrays[name][: self.used[column.per]].copy() for name, column in self._every.items()}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`, bit for bit, after checking that it is a table."""
        names = sorted(f"{name}_" for name in self._every)
        if sorted(state) != names:
            raise InvalidInput(f"state has {sorted(state)}, but this learner keeps {names}")
        fresh: dict[str, Array] = {}
        used: dict[str, int] = {}
        for name, column in self._every.items():
            value = np.array(state[f"{name}_"], order="C")
            if value.dtype != column.dtype or value.ndim != 1:
                wanted = f"{np.dtype(column.dtype)} in one row"
                raise InvalidInput(f"state '{name}_' is {value.dtype} of shape {value.shape}; it must be {wanted}")
            if used.setdefault(column.per, value.size) != value.size:
                raise InvalidInput(
                    f"state '{name}_' has {value.size} entries; the others of each {column.per} have {used[column.per]}"
                )
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise InvalidInput(f"state '{name}_' holds a number that is not finite; restore an older version")
            fresh[name] = value
        ends = self._checked_ends(fresh, used)
        for name, column in self._every.items():
            places = fresh[name], fresh["starts"], fresh["sizes"]
            if column.holds == "permutation" and not kernels.are_permutations(*places):
                raise InvalidInput(f"state '{name}_' does not hold every item once; restore an older version")
            if column.holds == "numbers" and not kernels.are_below(*places):
                raise InvalidInput(f"state '{name}_' holds a number that is not an item's; restore an older version")
        self.arrays, self.ends, self.used = fresh, ends, {**self.used, **used}
        rooms = fresh["rooms"].astype(np.int64)
        self.live = {"item": int(rooms.sum()), "pair": int(pair_count(rooms).sum())}
        self.slots = dict(zip(fresh["queries"].tolist(), range(used["query"]), strict=True))

    def _checked_ends(self, arrays: Mapping[str, Array], used: Mapping[str, int]) -> Array:
        """The oldest and newest query of a table in which everything stands where it should; what does not is named."""
        n, sizes, rooms = used["query"], arrays["sizes"], arrays["rooms"].astype(np.int64)
        if n > self.max_queries:
            raise InvalidInput(f"state has {n} queries, but max_queries is {self.max_queries}; set a larger one")
        if n and sizes.max() > self.max_items:
            raise InvalidInput(f"state has {sizes.max()} items in a query, but max_items is {self.max_items}; set more")
        ends = kernels.chain_ends(arrays["older"], arrays["newer"])
        fits = np.unique(arrays["queries"]).size == n and (n == 0 or ends[0] != kernels.NONE)
        fits = fits and bool(((sizes >= 0) & (sizes <= rooms) & (rooms >= 1) & (arrays["rounds"] >= 0)).all())
        for per, where, count in self._blocks:
            some = np.flatnonzero(count(rooms))  # the pairs of a query with one item stand nowhere
            order = some[np.argsort(arrays[where][some])]
            begins = arrays[where][order]
            stops = begins + count(rooms)[order]
            fits = fits and bool(
                (begins >= 0).all() and (stops <= used[per]).all() and (stops[:-1] <= begins[1:]).all()
            )
        if not fits:
            raise InvalidInput("state is not a table of queries: its arrays do not fit together; restore an older one")
        return np.array(ends)

    # -- copies that follow this table ------------------------------------------------------------------------------

    def delta(self, queries: int) -> dict[str, Array]:
        """Everything kept of the `queries` queries learned from last, the oldest first."""
        slots = kernels.newest(self.arrays["older"], self.ends, queries)
        sizes = self.arrays["sizes"][slots].astype(np.int64)
        found = {f"{name}_": self.arrays[name][slots] for name in self._by["query"] if name not in _PLACES}
        for per, starts, count in self._blocks:
            lengths = count(sizes)
            begins = self.arrays[starts][slots]
            where = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
            found |= {f"{name}_": self.arrays[name][where] for name in self._by[per]}
        return found

    def apply(self, delta: Mapping[str, Array]) -> None:
        """Put in the `delta` of another table; evicts in the order in which that table evicted."""
        at = {per: 0 for per, _, _ in self._blocks}
        for i, (code, size) in enumerate(zip(delta["queries_"].tolist(), delta["sizes_"].tolist(), strict=True)):
            slot = self.slots.get(code, kernels.NONE)
            if slot == kernels.NONE:
                slot = self._admit(code, size)
            room = int(self.arrays["rooms"][slot])
            if size > room:
                self._give_block(slot, min(max(size, room + room // 2), self.max_items))
            arrays = self.arrays
            for name in self._by["query"]:
                if name not in _PLACES:
                    arrays[name][slot] = delta[f"{name}_"][i]
            for per, starts, count in self._blocks:
                begin, source, length = int(arrays[starts][slot]), at[per], count(size)
                for name in self._by[per]:
                    arrays[name][begin : begin + length] = delta[f"{name}_"][source : source + length]
                at[per] = source + length
            kernels.touch(arrays["older"], arrays["newer"], self.ends, slot)


class PerQuery:
    """State, restore and state deltas of a learner that keeps everything it learns in `queries_`."""

    queries_: QueryTable

    def report(self) -> Report:
        """The state grows with the queries."""
        return Report(grows="remembers the items of each query, up to max_queries and max_items")

    def explain(self, impression: Impression) -> Explanation | None:  # noqa: ARG002
        """Nothing is known of the pairs of a ranking."""
        return None

    def state_delta(self, queries: int) -> dict[str, Array]:
        """What is known of the `queries` queries learned from last."""
        return self.queries_.delta(queries)

    def apply_delta(self, delta: Mapping[str, Array]) -> None:
        """Apply the `state_delta` of another learner."""
        self.queries_.apply(delta)

    def state(self) -> dict[str, Array]:
        """The table of queries."""
        return self.queries_.state()

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        self.queries_.load(state)

    def only_slot(self, query: str, items: int) -> int:
        """The slot of a query with the items 0, 1, … in an empty table, for compiled simulations."""
        table = self.queries_
        if items > table.max_items or len(table):
            raise InvalidParameter(
                f"the compiled loop needs a fresh learner with max_items of at least {items}, the user's documents; "
                f"this one has learned {len(table)} queries and has max_items={table.max_items}"
            )
        return table.enter(query, np.arange(items)).slot
