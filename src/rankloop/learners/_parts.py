"""Copies of a table of queries that follow it: what has changed in one, put into another.

The copy is one to rank with. It knows the same queries with the same numbers and forgets them in the same order; where
they stand in its arrays is its own affair.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rankloop.core.types import Array
from rankloop.kernels import queries as kernels
from rankloop.learners._queries import PLACES, Queries


def part(table: Queries, queries: int) -> dict[str, Array]:
    """All that is kept of so many queries, those learned from last, as `take` of another table puts it in.

    The oldest of them comes first, so that the other table forgets in the same order.
    """
    slots = kernels.newest(table.arrays["older"], table.ends, queries)
    sizes = table.arrays["sizes"][slots].astype(np.int64)
    found = {f"{name}_": table.arrays[name][slots] for name in table._by["query"] if name not in PLACES}
    for per, starts, count in table._blocks:
        lengths = count(sizes)
        begins = table.arrays[starts][slots]
        where = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        found |= {f"{name}_": table.arrays[name][where] for name in table._by[per]}
    return found


def take(table: Queries, part: Mapping[str, Array]) -> None:
    """Put in a `part` of another table; its last query is the one learned from last, now here, too."""
    at = {per: 0 for per, _, _ in table._blocks}
    for i, (code, size) in enumerate(zip(part["queries_"].tolist(), part["sizes_"].tolist(), strict=True)):
        slot = table.slots.get(code, kernels.NONE)
        if slot == kernels.NONE:
            slot = table._admit(code, size)
        room = int(table.arrays["rooms"][slot])
        if size > room:
            table._give_block(slot, min(max(size, room + room // 2), table.max_items))
        arrays = table.arrays
        for name in table._by["query"]:
            if name not in PLACES:
                arrays[name][slot] = part[f"{name}_"][i]
        for per, starts, count in table._blocks:
            begin, source, length = int(arrays[starts][slot]), at[per], count(size)
            for name in table._by[per]:
                arrays[name][begin : begin + length] = part[f"{name}_"][source : source + length]
            at[per] = source + length
        kernels.touch(arrays["older"], arrays["newer"], table.ends, slot)
