"""A request to rank on its way: from candidates to a list, to an impression for the store, to an answer."""

from __future__ import annotations

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
from rankloop.service.store.log import NewImpression
from rankloop.service.wire.calls import RankAnswer, RankedItem
from rankloop.types import Candidates


class PendingRanking:
    """What one request becomes."""

    def __init__(
        self,
        live: LiveRanker,
        call: RankCall,
        candidates: Candidates,
        number: int | None,
        clock: Callable[[], float],
    ) -> None:
        self.live, self.row, self.call, self.candidates = live, live.row, call, candidates
        self.k = min(call.k or live.row.spec.k, candidates.n)
        self.number, self.clock = number, clock

    def base(self) -> Ranked:
        """The caller's own order."""
        choice, serving = base_choice(self.candidates, self.k), self.live.serving
        body = codec.dump_impression(choice.impression)
        return Ranked(choice, body, None, None, 0 if serving is None else serving.learned)

    def impression(self, ranked: Ranked, mix: Mix | None, reason: str | None) -> NewImpression:
        """A list as it is stored, with the answer that is given; `reason` says why it is the caller's own order."""
        row, call, now = self.row, self.call, self.clock()
        assert self.number is not None
        items = ranked.choice.impression.items.tolist()
        made = new_id(now)
        answer = _answer(self, made, items, ranked.scores or [None] * len(items), ranked.learned, mix, reason)
        for item, shares in zip(answer.items, ranked.contributions or [], strict=False):
            item.features = shares
        credit = ranked.choice.credit
        return NewImpression(
            id=made,
            ranker=row.name,
            epoch=row.epoch,
            number=self.number,
            created=now,
            closes=now + row.spec.window_seconds,
            person=call.user,
            request_id=call.request_id,
            digest=identity.digest(self.candidates, self.k) if call.request_id is not None else b"",
            learn=reason is None,
            body=ranked.body,
            answer=msgspec.json.encode(answer),
            shown=msgspec.json.encode(items),
            experiment=None if mix is None else mix.experiment,
            credit=None if credit is None else msgspec.json.encode(credit.tolist()),
        )

    def unstored(self) -> bytes:
        """The answer while the store is down: the caller's own order, and nothing to report on."""
        items, serving = self.candidates.items[: self.k].tolist(), self.live.serving
        learned = 0 if serving is None else serving.learned
        return msgspec.json.encode(_answer(self, None, items, [None] * len(items), learned, None, "store"))


def _answer(
    asked: PendingRanking,
    impression_id: str | None,
    items: list[str | int],
    scores: Sequence[float | None],
    learned: int,
    mix: Mix | None,
    reason: str | None,
) -> RankAnswer:
    row: Ranker = asked.row
    return RankAnswer(
        impression_id=impression_id,
        ranker=row.name,
        version=asked.live.version(learned),
        exposure=mix.exposure if mix else row.spec.exposure,
        fallback=reason is not None,
        items=[RankedItem(item, i, score) for i, (item, score) in enumerate(zip(items, scores, strict=True), 1)],
        reason=reason,
        request_id=asked.call.request_id,
        experiment=mix.experiment if mix else None,
    )
