"""A request to rank on its way: from candidates to a list, to an impression in the store, to an answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import msgspec

from rankloop import codec
from rankloop.service import identity
from rankloop.service.ranking.exposure import Mix, base_choice
from rankloop.service.ranking.features import RankCall
from rankloop.service.ranking.live_ranker import LiveRanker
from rankloop.service.ranking.model import Ranked
from rankloop.service.store.admin import Ranker
from rankloop.service.store.ids import new_id
from rankloop.service.store.log import NewImpression, Stored
from rankloop.service.store.writer import Write, Writer
from rankloop.service.wire.calls import RankAnswer, RankedItem
from rankloop.types import Candidates


class PendingRanking:
    """What one request becomes. The thread that ranks also hands the list to the store: one wake-up less."""

    def __init__(
        self,
        live: LiveRanker,
        row: Ranker,
        call: RankCall,
        candidates: Candidates,
        k: int,
        number: int | None,
        clock: Callable[[], float],
    ) -> None:
        self.live, self.row, self.call, self.candidates = live, row, call, candidates
        self.k, self.number, self.clock = k, number, clock
        self.write: Write[Stored] | None = None
        self.explored = 0
        self._loop = asyncio.get_running_loop()
        self._ranked: Ranked | None = None
        self._mix: Mix | None = None
        self._reason: str | None = None
        self._given_up = False
        self._lock = threading.Lock()

    def ranked(self, ranked: Ranked, mix: Mix | None = None) -> None:
        """The learner has made a list, perhaps a mixed one."""
        self._ranked, self.explored, self._mix = ranked, ranked.choice.explored, mix

    def fall_back(self, reason: str) -> PendingRanking:
        """The same with the caller's own order, because of `reason`; a thread that hangs keeps hold of this one."""
        other = PendingRanking(self.live, self.row, self.call, self.candidates, self.k, self.number, self.clock)
        choice = base_choice(self.candidates, self.k)
        body = codec.dump_impression(choice.impression)
        other._ranked = Ranked(choice, body, None, None, self.live.serving.learned)
        other._reason = reason
        return other

    def give_up(self) -> None:
        """Nobody waits for the learner any more: what it still makes must not be stored, or is taken back."""
        with self._lock:
            self._given_up = True
            if self.write is not None:
                self.write.abandoned = True

    def store(self, writer: Writer) -> Write[Stored]:
        """Hand the impression to the store, unless it was given up."""
        impression = self._impression()
        with self._lock:
            if self._given_up:
                raise TimeoutError
            self.write = writer.impression(impression, self._loop)
            return self.write

    def unstored(self) -> bytes:
        """The answer while the store is down: the caller's own order, and nothing to report on."""
        items = self.candidates.items[: self.k].tolist()
        answer = self._answer(None, items, [None] * len(items))
        answer.fallback, answer.reason = True, "store"
        return msgspec.json.encode(answer)

    def _answer(self, impression_id: str | None, items: list[str | int], scores: Sequence[float | None]) -> RankAnswer:
        learned = self._ranked.learned if self._ranked else self.live.serving.learned
        return RankAnswer(
            impression_id=impression_id,
            ranker=self.row.name,
            version=self.live.version(learned),
            exposure=self._mix.exposure if self._mix else self.row.spec.exposure,
            fallback=self._reason is not None,
            items=[RankedItem(item, i, score) for i, (item, score) in enumerate(zip(items, scores, strict=True), 1)],
            reason=self._reason,
            request_id=self.call.request_id,
            experiment=self._mix.experiment if self._mix else None,
        )

    def _impression(self) -> NewImpression:
        ranked, call, now = self._ranked, self.call, self.clock()
        assert ranked is not None
        assert self.number is not None
        items = ranked.choice.impression.items.tolist()
        answer = self._answer(new_id(now), items, ranked.scores or [None] * self.k)
        for item, shares in zip(answer.items, ranked.contributions or [], strict=False):
            item.features = shares
        return NewImpression(
            id=str(answer.impression_id),
            ranker=self.row.name,
            epoch=self.row.epoch,
            number=self.number,
            created=now,
            closes=now + self.row.spec.window_seconds,
            person=call.user,
            request_id=call.request_id,
            digest=identity.digest(self.candidates, self.k) if call.request_id is not None else b"",
            learn=self._reason is None,
            body=ranked.body,
            answer=msgspec.json.encode(answer),
            shown=msgspec.json.encode(items),
            experiment=answer.experiment,
            credit=None if ranked.choice.credit is None else msgspec.json.encode(ranked.choice.credit.tolist()),
        )
