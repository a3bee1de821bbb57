"""Off-policy evaluation of an exported log in parallel: each challenger along the whole log, all else file by file.

Only a challenger that learns depends on the order of the log. Everything else is a sum over impressions, and sums add
up exactly: the estimates have the bits of a run in one process.
"""

from __future__ import annotations

from concurrent.futures import Executor, as_completed
from typing import NamedTuple

from rankloop.core.errors import InvalidParameter
from rankloop.core.executors import ProcessDied, result_of
from rankloop.service.maintenance.archive.files import LogFile
from rankloop.service.offline.challengers import Terms, Tries, Walk, is_saved
from rankloop.service.offline.exported import ExportedPast, chunks_in
from rankloop.service.offline.replay import Progress
from rankloop.service.offline.tally import Tally


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


def estimate_part(part: Part) -> Summed:
    """On a worker, which must have the files under the same path."""
    tries, first = Tries(part.terms), part.terms.first
    for file in part.files:
        for chunk in chunks_in(file, first, part.end):
            tries.add_chunk(chunk, part.epoch)
    return Summed(tries.tally(), tries.idle())


def try_out_on(executor: Executor, walk: Walk, on_progress: Progress | None = None) -> Summed:
    """Try learners on an exported log in the processes of an executor."""
    if not isinstance(walk.past, ExportedPast):
        raise InvalidParameter(
            "workers read files, not the store: write them with `rankloop export-log`, then give --log"
        )
    terms = walk.terms
    Tries(terms)  # refuses a wrong challenger before anything is sent
    files = walk.past.partitions(walk.row.name, terms.first, walk.end)
    saved = tuple(one for one in terms.challengers if is_saved(one))
    learners = [one for one in terms.challengers if one not in saved]
    parts = [Part(terms._replace(challengers=(one,)), walk.row.epoch, files, walk.end) for one in learners]
    parts += [Part(terms._replace(challengers=saved), walk.row.epoch, [file], walk.end) for file in files]
    names = [*learners, *(f"{walk.row.name} {file.day}" for file in files)]
    futures = {executor.submit(estimate_part, part): i for i, part in enumerate(parts)}
    whole, policies, idle = terms.tally(), {}, set[str]()
    for done, future in enumerate(as_completed(futures), start=1):
        i = futures[future]
        try:
            found = result_of(future)
        except ProcessDied as error:
            raise ProcessDied(f"{names[i]}: {error}") from None
        idle.update(found.idle)
        if i < len(learners):
            policies[learners[i]] = found.tally.policies.get(learners[i])
        else:
            whole.merge(found.tally)
        if on_progress:
            on_progress(done, len(parts))
    order = [label for label in whole.policies if label not in terms.challengers]
    own = {**whole.policies, **{label: sums for label, sums in policies.items() if sums is not None}}
    whole.policies = {label: own[label] for label in (*order, *terms.challengers) if label in own}
    return Summed(whole, [one for one in terms.challengers if one in idle])
