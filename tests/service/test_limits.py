"""Keys that may not ask without end: so often a second, so many at a time, and what they hear instead."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from rankloop.service.access import Keys, Limits, UseCounts, digest, new_token
from rankloop.service.errors import TooMany
from rankloop.service.observability import tracing
from rankloop.service.settings import Settings
from rankloop.service.storage import keys as stored
from rankloop.service.storage.keys import StoredKey, StoredKeys
from tests.service.app_fixtures import Service, fine, items, refused, until
from tests.waiting import PATIENCE

BODY = {"candidates": items(2)}


def limited(service: Service, **limits: Any) -> dict[str, str]:
    """The headers of a key that has limits."""
    token = new_token()
    made = StoredKey(digest(token), token, "rank+feedback+read", 1.0, **limits)
    assert service.engine.writer.do(lambda c: stored.add(c, made))
    service.engine.cycle()
    return {"authorization": f"Bearer {token}"}


def test_the_rate_limit_refills_at_its_rate() -> None:
    now = [0.0]
    limits = Limits(10.0, None, lambda: now[0])
    for _ in range(10):
        limits.enter()
    with pytest.raises(TooMany, match="10") as told:
        limits.enter()
    assert told.value.headers == {"Retry-After": "1"}
    through = 0
    for _ in range(1000):  # ten seconds of a caller that never waits
        now[0] += 0.01
        try:
            limits.enter()
            through += 1
        except TooMany:
            pass
    assert through in (99, 100)
    now[0] += 3600.0  # an hour of rest is not saved up
    for _ in range(10):
        limits.enter()
    with pytest.raises(TooMany):
        limits.enter()


def test_rates_below_one_return_the_wait() -> None:
    now = [0.0]
    limits = Limits(0.1, None, lambda: now[0])
    limits.enter()
    now[0] = 2.0
    with pytest.raises(TooMany) as told:
        limits.enter()
    assert told.value.headers == {"Retry-After": "8"}
    now[0] = 10.0
    limits.enter()


def test_refused_requests_do_not_count() -> None:
    limits = Limits(None, 2)
    limits.enter()
    limits.enter()
    for _ in range(5):
        with pytest.raises(TooMany):
            limits.enter()
    limits.leave()
    limits.enter()


def test_use_counts_forget_the_least_recent() -> None:
    counts = UseCounts(most=1, kept=2)
    assert [counts.take(name) for name in "abacba"] == [True, True, False, True, True, True]


def test_refreshing_keys_keeps_the_rate_limit() -> None:
    """Keys are read again every second."""
    keys, token = Keys(Settings()), new_token()
    one = StoredKey(digest(token), "n", "rank", 1.0, rate=0.001)
    keys.refresh(StoredKeys([one], True))

    async def ask() -> None:
        tracing.current.set(tracing.begun())
        keys.check(f"Bearer {token}", "rank")

    asyncio.run(ask())
    keys.refresh(StoredKeys([one], True))
    with pytest.raises(TooMany):
        asyncio.run(ask())
    keys.refresh(StoredKeys([one._replace(rate=0.002)], True))
    asyncio.run(ask())


def test_exceeding_the_rate_returns_retry_after(tmp_path: Path) -> None:
    with Service(tmp_path / "rate.db") as service:
        service.ready().put("shop", learner="base")
        slow, free = limited(service, rate=0.01), limited(service)
        path = "/v1/rankers/shop/rank"
        fine(service.http.post(path, json=BODY, headers=slow))
        for answer in (
            service.http.post(path, json=BODY, headers=slow),
            service.http.get("/v1/rankers", headers=slow),  # the framework's routes, too
        ):
            refused(answer, 429, "0.01", error="too-many")
            assert 90 <= int(answer.headers["retry-after"]) <= 100
        for _ in range(20):  # nobody else's trouble
            fine(service.http.post(path, json=BODY, headers=free))
        assert service.http.get("/metrics", headers=free).text.count('status="429"') == 2


def test_concurrency_limit_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(tmp_path / "many.db") as service:
        service.ready().put("shop", learner="base")
        headers, path = limited(service, concurrency=1), "/v1/rankers/shop/rank"
        inside, go_on, usual = threading.Event(), threading.Event(), service.engine.rank

        async def waits(*arguments: Any) -> bytes:
            inside.set()
            await asyncio.to_thread(go_on.wait, PATIENCE)
            return await usual(*arguments)

        monkeypatch.setattr(service.engine, "rank", waits)
        answers: list[Any] = []
        first = threading.Thread(target=lambda: answers.append(service.http.post(path, json=BODY, headers=headers)))
        first.start()
        assert inside.wait(PATIENCE)
        refused(service.http.get("/v1/rankers", headers=headers), 429, error="too-many")
        go_on.set()
        first.join()
        fine(answers[0])
        until(lambda: service.http.get("/v1/rankers", headers=headers).status_code == 200, "its place to be free")
        assert service.http.post(path, content=b"{", headers=headers).status_code == 400
        fine(service.http.get("/v1/rankers", headers=headers))  # one that failed has left, too


def test_limits_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rankloop.cli import main

    def run(*words: str) -> tuple[bool, str]:
        with pytest.raises(SystemExit) as ended:
            main(["keys", *words, "--store", str(tmp_path / "s.db")])
        said = capsys.readouterr()
        return ended.value.code in (0, None), said.out + said.err

    assert run("create", "web", "--rate", "2.5", "--concurrency", "20")[0]
    assert "2.5/s, 20 at a time" in run("list")[1]
    assert '"rate": 2.5' in run("list", "--json")[1]
    for words, named in (("--rate=0", "rate is 0"), ("--rate=nan", "rate is nan"), ("--concurrency=0", "at least 1")):
        fine_so, said = run("create", "bad", words)
        assert not fine_so
        assert named in said
