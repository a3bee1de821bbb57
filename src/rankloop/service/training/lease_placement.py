"""Which process should learn what: rankers are weighed by the work they make, and no process gets much more of it.

Every process decides for itself, from what all see in the store: who lives, who holds which lease, what each ranker
takes. So all come to the same result, nobody is in charge, and two that see different moments do no harm: a lease is
taken in one statement, or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

EACH = 0.001  # of a core: what a ranker takes that has nothing to learn. Idle ones are spread by their number
SLACK = 0.2  # of what a process has, by which it must have more than another would have after a change
QUIET = 0.02  # of a core: rankers below it may be given away whenever it is better; others stay for a while
MOST = 8  # leases that a process gives back at a time: the others need time to take them


def weight(name: str, loads: Mapping[str, float]) -> float:
    """What a ranker takes of a core, with what it takes by being there."""
    return EACH + max(0.0, loads.get(name, 0.0))


def totals(alive: Iterable[str], holders: Mapping[str, str], loads: Mapping[str, float]) -> dict[str, float]:
    """What each living process has to do."""
    found = dict.fromkeys(alive, 0.0)
    for name, holder in holders.items():
        if holder in found:
            found[holder] += weight(name, loads)
    return found


def to_take(
    me: str, alive: Collection[str], holders: Mapping[str, str], loads: Mapping[str, float], free: Iterable[str]
) -> list[str]:
    """Those of the leases that nobody has which are this process's to take: the heaviest first, each for whoever has
    least by then.

    >>> to_take("b", ["a", "b"], {"x": "a"}, {"x": 0.2, "y": 0.5, "z": 0.4}, ["y", "z"])
    ['y']
    """
    have = totals(alive, holders, loads)
    mine = []
    for name in sorted(free, key=lambda name: (-weight(name, loads), name)):
        least = min(have, key=lambda worker: (have[worker], worker))
        have[least] += weight(name, loads)
        if least == me:
            mine.append(name)
    return mine


def to_give(
    me: str,
    alive: Collection[str],
    holders: Mapping[str, str],
    loads: Mapping[str, float],
    staying: Collection[str] = (),
) -> list[str]:
    """Leases of this process that are better given back: after each, whoever has least would still have clearly less
    than this process had. By that margin a ranker that was given away does not come back when its load is measured a
    little differently. `staying` are not given.

    The largest that does not make the other one the busier of the two, else the smallest: a ranker that is more than
    half of all there is stays where it is, and the others leave it alone with its process.

    >>> to_give("a", ["a", "b"], dict.fromkeys("xyz", "a"), {"x": 0.9, "y": 0.1, "z": 0.1})
    ['z', 'y']
    >>> to_give("a", ["a", "b"], {"x": "a", "y": "b"}, {"x": 0.5, "y": 0.4})
    []
    """
    have = totals(alive, holders, loads)
    others = {worker: total for worker, total in have.items() if worker != me}
    own = {name: weight(name, loads) for name, holder in holders.items() if holder == me}
    given: list[str] = []
    while others and len(given) < MOST:
        least = min(others, key=lambda worker: (others[worker], worker))
        room = have[me] - others[least]
        fitting = [
            name
            for name, one in own.items()
            if name not in staying and name not in given and one + SLACK * have[me] <= room
        ]
        if not fitting:
            break
        halves = [name for name in fitting if 2 * own[name] <= room]
        name = max(halves, key=lambda name: (own[name], name)) if halves else min(fitting, key=lambda n: (own[n], n))
        given.append(name)
        have[me] -= own[name]
        others[least] += own[name]
    return given
