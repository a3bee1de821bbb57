"""What one machine gives that has everything on it: processes that rank, the one that learns, the database, the sender.

Two limits. A process that ranks is taken up by each list for a while, so `workers` of them give no more than so many
times the rate of one. And whatever a list takes of all processes together has to fit the cores. The lower one counts;
`python -m benchmarks.capacity_check` holds this against the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankloop.core.errors import InvalidParameter
from rankloop.service.capacity.constants import Constants
from rankloop.service.capacity.load import Load
from rankloop.service.capacity.plan import costs, outcomes_per_list


@dataclass(frozen=True)
class Throughput:
    """Lists a second of one machine, and why not more; others may have a part of its cores."""

    workers: int
    cores: float
    rate: float
    by_processes: float
    by_cores: float

    @property
    def limit(self) -> str:
        """Which of the two it is."""
        return "processes" if self.by_processes <= self.by_cores else "cores"


def throughput(load: Load, constants: Constants, workers: int, cores: float, with_sender: bool) -> Throughput:
    """Of callers who always have a request ready; `load.requests` is not looked at."""
    if not (1 <= workers <= 1024 and 0.1 <= cores <= 1024):
        raise InvalidParameter(f"workers is {workers} and cores {cores:g}; give 1 to 1024 of both")
    cost = costs(load, constants)
    learning = outcomes_per_list(load) * cost.outcome
    everything = cost.ranking + cost.database + learning + (cost.sender if with_sender else 0.0)
    by_processes = workers / cost.hold
    by_cores = cores * constants.store(load.store).usable / everything
    return Throughput(workers, cores, min(by_processes, by_cores), by_processes, by_cores)
