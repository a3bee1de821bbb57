"""A ranker in a process that ranks, and a request on its way from candidates to an answer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np
from msgspec import UNSET

from rankloop.core import codec, registry
from rankloop.core.types import Candidates, SparseRows
from rankloop.service.ranking.exposure import Choice, Interleaving, baseline_choice
from rankloop.service.ranking.model import PublishedModel, Ranked
from rankloop.service.ranking.placement import PlacementConstraints
from rankloop.service.serving.schema import RankCall, Schema
from rankloop.service.storage.ids import new_id
from rankloop.service.storage.impressions import NewImpression
from rankloop.service.storage.rankers import Ranker
from rankloop.service.worker.hang_supervisor import HangCounter, JobQueue, SupervisedPool
from rankloop.wire.calls import RankAnswer, RankedItem

BLOCK = 1024  # impression numbers that a process reserves at a time
LOW = BLOCK // 2  # left when the next block is requested
THREADS = 2  # of a ranker whose learner is slow
SLOW = 0.003  # seconds that ranking may take on the event loop; a slower learner gets threads
QUICK = 0.0015  # a learner that has become this fast ranks on the event loop again
SHARE = 0.1  # weight of the newest request in the mean duration
LOAD_SECONDS = 5.0  # that loading a state may take before it counts as slow
TALLIES = 100_000  # answered requests that wait to be counted, at most


class Answered(NamedTuple):
    """An answered request, to be counted later."""

    exposure: str
    decided: int
    explored: int
    reason: str | None  # of a fallback
    seconds: float | None  # None: the store did not take it


class ImpressionNumbers:
    """Impression numbers reserved for this process. The random numbers of a ranking depend on its number."""

    def __init__(self) -> None:
        self._blocks: deque[range] = deque()

    def take(self) -> int | None:
        """The next number; None if none is left."""
        if not self._blocks:
            return None
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return block[0]

    @property
    def low(self) -> bool:
        """Whether it is time to reserve more."""
        return sum(map(len, self._blocks)) <= LOW

    def refill(self, first: int, count: int = BLOCK) -> None:
        """Add the numbers from `first`."""
        self._blocks.append(range(first, first + count))


class LiveRanker(HangCounter):
    """What is needed to answer requests to a ranker without reading the store.

    One object belongs to one generation of a ranker with one learner and one set of features: a rollback, a reset or
    another learner makes a new one. Its states are loaded by one thread, `loader`.
    """

    def __init__(self, row: Ranker, model: PublishedModel | None = None) -> None:
        super().__init__()
        self.row, self.model = row, model
        self.pinned: PublishedModel | None = None  # the promoted version, if one is
        self.previous: PublishedModel | None = None  # ranks until what the row asks for has been loaded
        self.errors: dict[str, str] = {}  # why the last attempt to load the live state ("live") or a version failed
        self.failures = 0  # consecutive attempts to load that failed
        self.retry_at = 0.0  # monotonic: nothing is loaded before
        self.deferred = False  # whether there is something to load then
        self.loader = JobQueue(f"rankloop-load-{row.name}")
        self.head = 0  # outcomes in the store when this process last looked
        self.behind_since: float | None = None  # when the first outcome closed that the live model does not include
        self.behind_at = -1  # the number of that outcome
        self._publishing = threading.Lock()
        self.schema = Schema(row.spec)
        self.kind: str = registry.learner_class(row.spec.learner).feedback
        # Learners of plugins may hang or be slow, and a network takes milliseconds: both rank in threads.
        entry = registry.entry_of(row.spec.learner)
        self.trusted = entry.path.startswith("rankloop.learners.")
        self.inline = self._may_be_inline = self.trusted and entry.family != "neural"
        self.compiled = False  # whether its kernels are
        self.answered: deque[Answered] = deque(maxlen=TALLIES)
        self.numbers = ImpressionNumbers()
        self._seconds = 0.0
        self._pool: SupervisedPool | None = None

    @property
    def has_rules(self) -> bool:
        """Whether the spec pins, excludes or limits items."""
        spec = self.row.spec
        return bool(spec.pinned or spec.excluded or spec.quotas)

    @property
    def wanted(self) -> PublishedModel | None:
        """The model that the row asks for, the live one or the promoted version; None if it is not loaded."""
        if self.row.serving is None:
            return self.model
        return self.pinned if self.pinned is not None and self.pinned.version == self.row.serving else None

    @property
    def serving(self) -> PublishedModel | None:
        """The model that ranks: the one that the row asks for or, while that is loaded, the one before it. None: the
        baseline ranking is shown."""
        return self.wanted or self.previous

    @property
    def version(self) -> str:
        """The label of the model that ranks, or of the one that should."""
        serving = self.serving
        if serving is not None:
            return serving.label
        return "live@0" if self.row.serving is None else f"v{self.row.serving}"

    @property
    def load_error(self) -> str | None:
        """Why the last attempt to load a state failed; None if it did not."""
        return next(iter(list(self.errors.values())), None)

    @property
    def loading_seconds(self) -> float:
        """For how long a state has been loading, if that is longer than usual; else 0."""
        seconds = self.loader.seconds
        return seconds if seconds > LOAD_SECONDS else 0.0

    @property
    def trouble(self) -> str | None:
        """Why it does not rank with the model that the row asks for; None if it does."""
        seconds, serving = self.loading_seconds, self.serving
        why = f"its state has been loading for {seconds:.0f} s" if seconds else self.load_error
        if serving is None:
            return f"the baseline ranking is shown: {why or 'its state has not been loaded yet'}"
        return None if why is None else f"{serving.label} ranks meanwhile: {why}"

    def publish(self, model: PublishedModel) -> None:
        """Rank with this live model from now on, unless a newer one is published already."""
        with self._publishing:
            if self.model is None or self.model.learned <= model.learned:
                self.model = model

    def age(self, now: float) -> float:
        """Age in seconds of the oldest outcome seen in the store that the live model does not include; 0 if none."""
        since, model = self.behind_since, self.model
        if since is None or (model is not None and model.learned > self.behind_at):
            return 0.0
        return max(0.0, now - since)

    def take_over(self, other: LiveRanker) -> None:
        """Continue in the place of the same ranker with another state."""
        self.answered, self.numbers = other.answered, other.numbers
        self._pool, self.schema = other._pool, Schema(self.row.spec, before=other.schema)

    @property
    def pool(self) -> SupervisedPool:
        """Its threads, which no other ranker's learner waits for."""
        if self._pool is None:
            self._pool = SupervisedPool(THREADS, f"rankloop-rank-{self.row.name}")
        return self._pool

    def record(self, seconds: float) -> None:
        """Record how long a ranking took. A slow learner moves to threads, so that other rankers need not wait."""
        mean = self._seconds = self._seconds + SHARE * (seconds - self._seconds)
        if self.inline:
            if mean > SLOW:
                self.inline = False
        elif mean < QUICK:
            self.inline = self._may_be_inline

    def close(self) -> None:
        """End its threads."""
        if self._pool is not None:
            self._pool.close()


class PendingRanking:
    """A request on its way: from candidates to a ranking, to an impression for the store, to an answer.

    `constraints` is what the learner does not decide; `candidates` and `k` are what is left.
    """

    def __init__(
        self,
        live: LiveRanker,
        call: RankCall,
        candidates: Candidates,
        number: int | None,
        clock: Callable[[], float],
        constraints: PlacementConstraints | None = None,
    ) -> None:
        self.live, self.row, self.call, self.candidates = live, live.row, call, candidates
        self.k = min(call.k or live.row.spec.k, candidates.n)
        self.number, self.clock, self.constraints = number, clock, constraints
        self.spec = live.row.spec
        if call.as_shown:
            self.spec = msgspec.structs.replace(self.spec, exposure="shadow")

    def baseline(self) -> Ranked:
        """The baseline ranking."""
        choice = self._baseline()
        body = codec.dump_impression(choice.impression)
        return Ranked(choice, body, None, None, self.live.version, self._certain())

    def _certain(self) -> dict[str, float | None] | None:
        """The probabilities of the baseline ranking, if they are requested."""
        if not self.call.chances:
            return None
        return {str(item): float(i == 0) for i, item in enumerate(self.candidates.items.tolist())}

    def _baseline(self) -> Choice:
        if self.constraints is None:
            return baseline_choice(self.candidates, self.k)
        return self.constraints.baseline(self.candidates, self.k)

    def impression(self, ranked: Ranked, rival: Interleaving | None, reason: str | None) -> NewImpression:
        """A ranking as it is stored, with its answer; `reason` is why it is the baseline ranking, if it is."""
        row, call, now = self.row, self.call, self.clock()
        assert self.number is not None
        own_id, choice, constraints = new_id(now), ranked.choice, self.constraints
        items: list[Any] = choice.impression.items.tolist()
        scores: list[Any] = ranked.scores or [None] * len(items)
        shares: list[Any] = ranked.contributions or []
        if constraints is not None:
            scores = [None if score is UNSET else score for score in constraints.merged(scores, UNSET)]
            shares = constraints.merged(shares, UNSET) if shares else shares
            items = constraints.merged(items)
        answer = self._answer(own_id, items, scores, ranked.version, rival, reason)
        if ranked.chances is not None:
            answer.chances = dict.fromkeys(ranked.chances) if rival else ranked.chances
        for item, share in zip(answer.items, shares, strict=False):
            item.features = share
        if choice.relaxed:
            answer.relaxed = list(choice.relaxed)
        credit = choice.credit
        return NewImpression(
            id=own_id,
            ranker=row.name,
            epoch=row.epoch,
            number=self.number,
            created=now,
            closes=now + row.spec.window_seconds,
            person=call.user,
            request_id=call.request_id,
            digest=self._digest() if call.request_id is not None else b"",
            learn=reason is None,
            body=ranked.body,
            answer=msgspec.json.encode(answer),
            shown=msgspec.json.encode(items),
            experiment=None if rival is None else rival.experiment,
            credit=None if credit is None else msgspec.json.encode(credit.tolist()),
            viewed=0 if call.deferred else None,
            notes=self.live.schema.notes(call, items, choice.impression.memo),
        )

    def _digest(self) -> bytes:
        """Of what was requested, not of what was computed for it: the catalog may change before a retry."""
        call, signature, sent = (
            self.call,
            [] if self.constraints is None else self.constraints.signature,
            self.call.sent,
        )
        rows = 0
        if isinstance(sent, SparseRows):
            rows = crc32(sent.values.data, crc32(sent.indices.data, crc32(sent.indptr.data)))
        elif sent is not None:
            rows = crc32(np.ascontiguousarray(sent).data)
        requested = [call.query, self.k, call.ids, dict(call.fields), *signature, rows]
        return blake2b(msgspec.json.encode(requested), digest_size=16).digest()

    def unstored(self) -> bytes:
        """The answer if the store is unavailable: the baseline ranking, without an impression."""
        items = self._baseline().impression.items.tolist()
        items = items if self.constraints is None else self.constraints.merged(items)
        answer = self._answer(None, items, [None] * len(items), self.live.version, None, "store")
        answer.chances = self._certain() or UNSET
        return msgspec.json.encode(answer)

    def _answer(
        self,
        impression_id: str | None,
        items: list[str | int],
        scores: Sequence[float | None],
        version: str,
        rival: Interleaving | None,
        reason: str | None,
    ) -> RankAnswer:
        return RankAnswer(
            impression_id=impression_id,
            ranker=self.row.name,
            version=version,
            exposure=rival.exposure if rival else self.spec.exposure,
            fallback=reason is not None,
            items=[RankedItem(item, i, score) for i, (item, score) in enumerate(zip(items, scores, strict=True), 1)],
            reason=reason,
            request_id=self.call.request_id,
            experiment=rival.experiment if rival else None,
        )
