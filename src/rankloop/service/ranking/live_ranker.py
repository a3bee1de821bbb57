"""A ranker as a process that ranks knows it, and what becomes of a request to it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from rankloop.core import codec, registry
from rankloop.core.types import Candidates
from rankloop.service.access import identity
from rankloop.service.ranking.exposure import Choice, Mix, base_choice
from rankloop.service.ranking.features import RankCall, Schema
from rankloop.service.ranking.in_flight import InFlight
from rankloop.service.ranking.model import Model, Ranked
from rankloop.service.ranking.pool import JobQueue, Pool
from rankloop.service.ranking.rules import Frame
from rankloop.service.storage.admin import Ranker
from rankloop.service.storage.log import NewImpression, new_id
from rankloop.wire.calls import RankAnswer, RankedItem

BLOCK = 1024  # impression numbers that a process reserves at a time
LOW = BLOCK // 2  # left when the next block is asked for: long before anybody would wait for it
THREADS = 2  # of a ranker whose learner is slow
SLOW = 0.003  # seconds that ranking may take where requests are read; a slower learner gets threads
QUICK = 0.0015  # and one that has become as quick as this is asked directly again
SHARE = 0.1  # of the newest list in the mean of how long lists take
LOAD_SECONDS = 5.0  # that loading a state may take before it counts as slow
TALLIES = 100_000  # lists that wait to be counted at most


class Answered(NamedTuple):
    """A list that was answered, to be counted when there is time."""

    exposure: str
    decided: int
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
    """What is needed to answer for a ranker without asking the store.

    One object belongs to one generation of a ranker with one learner and one set of features: after a rollback, a reset
    or another learner, there is a new one. Its states are loaded by one thread, `loader`.
    """

    def __init__(self, row: Ranker, model: Model | None = None) -> None:
        super().__init__()
        self.row, self.model = row, model
        self.pinned: Model | None = None  # the promoted version, if one is
        self.previous: Model | None = None  # serves until what the row asks for has been loaded
        self.errors: dict[str, str] = {}  # why the last attempt to load the live state ("live") or a version failed
        self.failures = 0  # attempts to load in a row that failed
        self.rest = 0.0  # monotonic: until then nothing is loaded
        self.put_off = False  # whether there is something to load then
        self.loader = JobQueue(f"rankloop-load-{row.name}")
        self.head = 0  # outcomes in the store when this process last looked
        self.behind_since: float | None = None  # when the first outcome closed that the live model does not include
        self.behind_at = -1  # the number of that outcome
        self._publishing = threading.Lock()
        self.schema = Schema(row.spec)
        self.kind: str = registry.learner_class(row.spec.learner).feedback
        # What others bring may hang or take long; a network takes milliseconds. Both are asked in threads.
        entry = registry.entry_of(row.spec.learner)
        self.trusted = entry.path.startswith("rankloop.learners.")
        self.inline = self._may_be_inline = self.trusted and entry.family != "neural"
        self.warm = False
        self.answered: deque[Answered] = deque(maxlen=TALLIES)
        self.numbers = Numbers()
        self._seconds = 0.0
        self._pool: Pool | None = None

    @property
    def ruled(self) -> bool:
        """Whether the spec pins, excludes or limits items."""
        spec = self.row.spec
        return bool(spec.pinned or spec.excluded or spec.quotas)

    @property
    def asked_for(self) -> Model | None:
        """The model that the row asks for, the live one or the promoted version; None if it is not loaded."""
        if self.row.serving is None:
            return self.model
        return self.pinned if self.pinned is not None and self.pinned.version == self.row.serving else None

    @property
    def serving(self) -> Model | None:
        """The model that ranks, under its own label: the one that the row asks for or, while that is being loaded, the
        one before it. None: the baseline ranking is shown."""
        return self.asked_for or self.previous

    @property
    def version(self) -> str:
        """The label of the model that ranks, or of the one that should."""
        serving = self.serving
        if serving is not None:
            return serving.label
        return "live@0" if self.row.serving is None else f"v{self.row.serving}"

    @property
    def broken(self) -> str | None:
        """Why the last attempt to load a state failed; None if it did not."""
        return next(iter(list(self.errors.values())), None)

    @property
    def slow(self) -> float:
        """For how many seconds a state has been loading, if that is longer than usual; else 0."""
        seconds = self.loader.seconds
        return seconds if seconds > LOAD_SECONDS else 0.0

    @property
    def trouble(self) -> str | None:
        """Why it does not rank with what it should, if that is so."""
        slow, serving = self.slow, self.serving
        why = f"its state has been loading for {slow:.0f} s" if slow else self.broken
        if serving is None:
            return f"the baseline ranking is shown: {why or 'its state has not been loaded yet'}"
        return None if why is None else f"{serving.label} ranks meanwhile: {why}"

    def publish(self, model: Model) -> None:
        """Rank with this live model from now on, unless a newer one is there already."""
        with self._publishing:
            if self.model is None or self.model.learned <= model.learned:
                self.model = model

    def age(self, now: float) -> float:
        """Age in seconds of the oldest outcome in the store that the live model does not include; 0 if it includes all
        that this process has seen there."""
        since, model = self.behind_since, self.model
        if since is None or (model is not None and model.learned > self.behind_at):
            return 0.0
        return max(0.0, now - since)

    def take_over(self, other: LiveRanker) -> None:
        """Go on in the place of the same ranker with another state."""
        self.answered, self.numbers = other.answered, other.numbers
        self._pool, self.schema = other._pool, Schema(self.row.spec, before=other.schema)

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


class PendingRanking:
    """A request to rank on its way: from candidates to a list, to an impression for the store, to an answer."""

    def __init__(
        self,
        live: LiveRanker,
        call: RankCall,
        candidates: Candidates,
        number: int | None,
        clock: Callable[[], float],
        frame: Frame | None = None,
    ) -> None:
        self.frame = frame  # what of the list the learner does not decide; candidates and k are without it
        self.live, self.row, self.call, self.candidates = live, live.row, call, candidates
        self.k = min(call.k or live.row.spec.k, candidates.n)
        self.number, self.clock = number, clock
        self.spec = live.row.spec
        if call.as_shown:
            self.spec = msgspec.structs.replace(self.spec, exposure="shadow")

    def base(self) -> Ranked:
        """The caller's own order."""
        choice = self._base()
        body = codec.dump_impression(choice.impression)
        return Ranked(choice, body, None, None, self.live.version, self._certain())

    def _certain(self) -> dict[str, float | None] | None:
        """The chances in the caller's own order, if they are wanted."""
        if not self.call.chances:
            return None
        return {str(item): float(i == 0) for i, item in enumerate(self.candidates.items.tolist())}

    def _base(self) -> Choice:
        if self.frame is None:
            return base_choice(self.candidates, self.k)
        return self.frame.base(self.candidates, self.k)

    def impression(self, ranked: Ranked, mix: Mix | None, reason: str | None) -> NewImpression:
        """A list as it is stored, with the answer that is given; `reason` says why it is the caller's own order."""
        row, call, now = self.row, self.call, self.clock()
        assert self.number is not None
        made, choice, frame = new_id(now), ranked.choice, self.frame
        items: list[Any] = choice.impression.items.tolist()
        scores: list[Any] = ranked.scores or [None] * len(items)
        shares: list[Any] = ranked.contributions or []
        if frame is not None:
            scores = [None if score is UNSET else score for score in frame.merged(scores, UNSET)]
            shares = frame.merged(shares, UNSET) if shares else shares
            items = frame.merged(items)
        answer = _answer(self, made, items, scores, ranked.version, mix, reason)
        if ranked.chances is not None:
            answer.chances = dict.fromkeys(ranked.chances) if mix else ranked.chances
        for item, share in zip(answer.items, shares, strict=False):
            item.features = share
        if choice.relaxed:
            answer.relaxed = list(choice.relaxed)
        credit = choice.credit
        return NewImpression(
            id=made,
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
            experiment=None if mix is None else mix.experiment,
            credit=None if credit is None else msgspec.json.encode(credit.tolist()),
            viewed=0 if call.deferred else None,
            notes=self.live.schema.notes(call, items, choice.impression.memo),
        )

    def _digest(self) -> bytes:
        """Of what was asked, not of what was computed for it: a catalog may change before someone asks again."""
        call, frame = self.call, self.frame
        said = (call.query, self.k, call.ids, dict(call.fields), *(() if frame is None else frame.signature))
        return identity.digest(said, call.sent)

    def unstored(self) -> bytes:
        """The answer while the store is down: the caller's own order, and nothing to report on."""
        items = self._base().impression.items.tolist()
        items = items if self.frame is None else self.frame.merged(items)
        answer = _answer(self, None, items, [None] * len(items), self.live.version, None, "store")
        answer.chances = self._certain() or msgspec.UNSET
        return msgspec.json.encode(answer)


def _answer(
    asked: PendingRanking,
    impression_id: str | None,
    items: list[str | int],
    scores: Sequence[float | None],
    version: str,
    mix: Mix | None,
    reason: str | None,
) -> RankAnswer:
    row: Ranker = asked.row
    return RankAnswer(
        impression_id=impression_id,
        ranker=row.name,
        version=version,
        exposure=mix.exposure if mix else asked.spec.exposure,
        fallback=reason is not None,
        items=[RankedItem(item, i, score) for i, (item, score) in enumerate(zip(items, scores, strict=True), 1)],
        reason=reason,
        request_id=asked.call.request_id,
        experiment=mix.experiment if mix else None,
    )
