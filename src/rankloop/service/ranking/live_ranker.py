"""A ranker as a process that ranks knows it: its row, the model that was published, the one that is served."""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

from rankloop import registry
from rankloop.service.ranking.features import Schema
from rankloop.service.ranking.in_flight import InFlight
from rankloop.service.ranking.model import Model
from rankloop.service.ranking.pool import Pool
from rankloop.service.store.admin import Ranker

BLOCK = 1024  # impression numbers that a process reserves at a time
LOW = BLOCK // 2  # left when the next block is asked for: long before anybody would wait for it
THREADS = 2  # of a ranker whose learner is slow
SLOW = 0.003  # seconds that ranking may take where requests are read; a slower learner gets threads
QUICK = 0.0015  # and one that has become as quick as this is asked directly again
SHARE = 0.1  # of the newest list in the mean of how long lists take
TALLIES = 100_000  # lists that wait to be counted at most


class Answered(NamedTuple):
    """A list that was answered, to be counted when there is time."""

    exposure: str
    k: int
    explored: int
    reason: str | None  # of a fallback
    seconds: float | None  # None: the store did not take it


class Numbers:
    """Numbers of impressions that are this process's own: the random numbers of a list hang on its number."""

    def __init__(self) -> None:
        self._blocks: deque[range] = deque()
        self._taken = 0  # of the first of them

    def take(self) -> int | None:
        """The next one; None if there is none left."""
        if not self._blocks:
            return None
        block, taken = self._blocks[0], self._taken
        if taken + 1 == len(block):
            self._blocks.popleft()
            self._taken = 0
        else:
            self._taken = taken + 1
        return block[taken]

    @property
    def low(self) -> bool:
        """Whether it is time to ask for more."""
        return len(self._blocks) < 2 and (not self._blocks or len(self._blocks[0]) - self._taken <= LOW)

    def refill(self, first: int, count: int = BLOCK) -> None:
        """Numbers `first` … belong to this process."""
        self._blocks.append(range(first, first + count))


class LiveRanker(InFlight):
    """What is needed to answer for a ranker without asking the store."""

    def __init__(self, row: Ranker, model: Model | None, broken: str | None = None) -> None:
        super().__init__()
        self.row, self.model = row, model
        self.broken = broken  # why there is no model
        self.schema = Schema(row.spec)
        self.kind: str = registry.learner_class(row.spec.learner).feedback
        # What others bring may hang or take long; a network takes milliseconds. Both are asked in threads.
        entry = registry.entry_of(row.spec.learner)
        self.trusted = entry.path.startswith("rankloop.learners.")
        self.inline = self._may_be_inline = self.trusted and entry.family != "neural"
        self.pinned: Model | None = None  # the promoted version, if one is served
        self.warm = False
        self.counts: Counter[str] = Counter()
        self.answered: deque[Answered] = deque(maxlen=TALLIES)
        self.loading = False  # a thread puts a published state in
        self.numbers = Numbers()
        self._seconds = 0.0
        self._pool: Pool | None = None

    @property
    def serving(self) -> Model | None:
        """The model that ranks; None if its state is damaged."""
        return self.pinned or self.model

    def version(self, learned: int) -> str:
        """What ranked, as answers say it."""
        return f"live@{learned}" if self.row.serving is None else f"v{self.row.serving}"

    def take_over(self, other: LiveRanker) -> None:
        """Go on in the place of the same ranker with another state."""
        self.counts, self.answered, self.numbers = other.counts, other.answered, other.numbers
        self._pool = other._pool

    # -- pace ------------------------------------------------------------------------------------------------------

    @property
    def pool(self) -> Pool:
        """Its threads: nobody else's learner waits for them."""
        if self._pool is None:
            self._pool = Pool(THREADS, f"rankloop-rank-{self.row.name}")
        return self._pool

    def took(self, seconds: float) -> None:
        """A list took so long to rank: slow learners get threads, so that others need not wait for them."""
        mean = self._seconds = self._seconds + SHARE * (seconds - self._seconds)
        if self.inline:
            if mean > SLOW:
                self.inline = False
        elif mean < QUICK:
            self.inline = self._may_be_inline

    def close(self) -> None:
        """Let its threads end."""
        if self._pool is not None:
            self._pool.close()
