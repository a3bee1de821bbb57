"""Killed again and again while an experiment runs: every mixed list counts once, and the tally is that of the log."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import msgspec
import pytest

from rankloop.service.storage.experiments import InterleavedOutcome, Tally
from rankloop.service.training import evidence
from rankloop.wire.experiments import ExperimentRequest
from tests.service.running import Load, Service, wait_for
from tests.service.truths import check_log, read


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_kill_nine(store_url: str, start_service: Callable[..., Service]) -> None:
    service = start_service(store=store_url, snapshot_seconds=0.1, refresh_seconds=0.1)
    service.put_ranker("shop", guardrail={"share": 0.3, "alpha": 1e-6})
    assert service.ask("POST", "/v1/rankers/shop/experiments", {"share": 0.6}).status == 201
    rng = random.Random(store_url[:6])
    load = Load("load", service.port)
    load.start()
    tallied: list[int] = []

    def counted() -> int:
        return sum(row[0] for row in read(store_url, "SELECT next_seq FROM experiments"))

    for _ in range(3):
        wait_for(lambda: counted() > (tallied[-1] if tallied else 0), "lists to be counted")
        time.sleep(rng.uniform(0.0, 0.3))
        service.kill()
        rows = read(store_url, "SELECT id, next_seq, tally FROM experiments ORDER BY id")
        ((head,),) = read(store_url, "SELECT next_seq FROM log_offsets")
        for number, seq, stored in rows:
            # Whenever it was killed, what is stored is the tally of the log up to the place beside it.
            assert seq <= head
            assert bytes(stored) == _folded(store_url, number, seq)
        tallied.append(sum(row[1] for row in rows))
        service.start()
    load.end()

    def settled() -> bool:
        status = service.status("shop")
        return bool(status["open_impressions"] == 0 and status["unlearned_impressions"] == 0)

    wait_for(settled, "the last windows to close and all to be learned")
    assert service.stop() == 0, service.log()
    head = check_log(store_url, "shop", [load])
    assert tallied == sorted(set(tallied))  # kills came between counts
    for number, seq, stored in read(store_url, "SELECT id, next_seq, tally FROM experiments ORDER BY id"):
        assert bytes(stored) == _folded(store_url, number, seq)
        assert json.loads(stored)["lists"] > 0
        # A drain counts to the end; what it need not look through again is left out of the tally, not of the log.
        assert not _mixed(store_url, number, seq, head)


def _mixed(url: str, number: int, since: int, until: int) -> list[InterleavedOutcome]:
    rows = read(
        url,
        "SELECT o.seq, i.credit, o.feedback, o.created FROM outcomes o JOIN impressions i ON i.id = o.impression_id "
        "WHERE i.experiment = ? AND o.seq >= ? AND o.seq < ? ORDER BY o.seq",
        number,
        since,
        until,
    )
    return [InterleavedOutcome(seq, json.loads(credit), json.loads(values), when) for seq, credit, values, when in rows]


def _folded(url: str, number: int, until: int) -> bytes:
    """The tally over the whole log at once."""
    ((kind, terms),) = read(url, "SELECT kind, terms FROM experiments WHERE id = ?", number)
    alpha, tally = msgspec.json.decode(terms, type=ExperimentRequest).alpha, Tally()
    evidence.fold(tally, _mixed(url, number, 0, until), alpha, kind == "guardrail")
    return msgspec.json.encode(tally)
