"""Challengers side by side on a Dask cluster, each along the whole log; what does not learn, file by file.

A learner is one stream: what it would have shown hangs on all that came before. Everything else (what was logged, the
base order, saved learners, what swaps tell) is a sum over lists, so each file is summed by whoever is free. Sums add up
exactly: the figures have the bits of a run in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rankloop.core.errors import InvalidParameter
from rankloop.service.maintenance.archive.files import LogFile
from rankloop.service.offline.challengers import Terms, Tries, Walk, is_saved
from rankloop.service.offline.exported import ExportedPast, chunks_in
from rankloop.service.offline.replay import Progress
from rankloop.service.offline.tally import Tally

if TYPE_CHECKING:
    from rankloop.core.cluster import Cluster


class Part(NamedTuple):
    """A piece of work: some challengers along some files."""

    terms: Terms
    epoch: int
    files: list[LogFile]
    end: int


class Summed(NamedTuple):
    """What came of it."""

    tally: Tally
    idle: list[str]


def carry_out(part: Part, tell: Callable[[Any], None]) -> Summed:
    """On a worker, which must see the files under the same path."""
    tries, first = Tries(part.terms), part.terms.first
    for file in part.files:
        for chunk in chunks_in(file, first, part.end):
            tries.add_chunk(chunk, part.epoch)
            tell(int(chunk.seq[-1]) + 1 - max(first, part.files[0].first))
    return Summed(tries.tally(), tries.idle())


def try_out_on(cluster: Cluster, walk: Walk, on_progress: Progress | None = None) -> Summed:
    """Try learners on an exported log, by whoever is free."""
    from rankloop.core.cluster import ClusterError, Lost

    if not isinstance(walk.past, ExportedPast):
        raise InvalidParameter(
            "workers read files, not the store: write them with `rankloop export-log`, then give --log"
        )
    terms = walk.terms
    Tries(terms)  # what is wrong with a challenger is told here, before anything is sent
    files = walk.past.partitions(walk.row.name, terms.first, walk.end)
    saved = tuple(one for one in terms.challengers if is_saved(one))
    learners = [one for one in terms.challengers if one not in saved]
    parts = [Part(terms._replace(challengers=(one,)), walk.row.epoch, files, walk.end) for one in learners]
    parts += [Part(terms._replace(challengers=saved), walk.row.epoch, [file], walk.end) for file in files]
    names = [*learners, *(f"{walk.row.name} {file.day}" for file in files)]
    total, done = len(learners) * (walk.end - terms.first), dict[int, int]()
    total += sum(min(file.end, walk.end) - max(file.first, terms.first) for file in files)

    def note(i: int, count: int) -> None:
        done[i] = count
        if on_progress:
            on_progress(sum(done.values()), total)

    whole, policies, idle = terms.tally(), {}, set[str]()
    for i, found in cluster.map(carry_out, parts, names, note):
        if isinstance(found, Lost):
            raise ClusterError(f"{names[i]}: {found.reason}")
        idle.update(found.idle)
        if i < len(learners):
            policies[learners[i]] = found.tally.policies.get(learners[i])
        else:
            whole.merge(found.tally)
    order = [label for label in whole.policies if label not in terms.challengers]
    own = {**whole.policies, **{label: sums for label, sums in policies.items() if sums is not None}}
    whole.policies = {label: own[label] for label in (*order, *terms.challengers) if label in own}
    return Summed(whole, [one for one in terms.challengers if one in idle])
