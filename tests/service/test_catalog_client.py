"""The client and the command line send a catalog in portions and say what was rejected."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankloop.cli import main
from rankloop.client import Client, ServiceError
from rankloop.client import requests as client_requests
from rankloop.client.exchange import Call, Exchange, Reply
from rankloop.core.errors import InvalidInput
from rankloop.wire.catalog import CatalogAnswer
from tests.service.running import PATIENCE, Service, wait_for


def carried_out(steps: Any, answer: Callable[[Call], bytes]) -> tuple[Any, list[Call]]:
    """What steps come to where every call is answered, and the calls."""
    calls: list[Call] = []
    reply: Reply | None = None
    try:
        while True:
            step = steps.send(reply)
            calls.append(step)
            reply = Reply(200, answer(step))
    except StopIteration as end:
        return end.value, calls


def rejecting(call: Call) -> bytes:
    """The answer of a service that rejects the first line of each call."""
    assert call.body is not None
    lines = [number for number, line in enumerate(call.body.split(b"\n"), 1) if line.strip()]
    results: list[dict[str, Any]] = [{"line": number, "status": "accepted", "id": "x"} for number in lines]
    results[0] |= {"status": "rejected", "reason": "because"}
    return json.dumps({"results": results, "counts": {"accepted": len(lines) - 1, "rejected": 1}}).encode()


def run(arguments: list[str], code: int = 0) -> None:
    """A command that must succeed, or end with this code."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == code


def test_many_items_are_several_calls_and_lines_are_numbered_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_requests, "LINES", 3)
    shop = client_requests.CatalogRequests(Exchange("http://127.0.0.1:1", 0), "shop")
    seen: list[int] = []
    steps = shop.put(({"id": i} for i in range(8)), seen.append)
    answer, calls = carried_out(steps, rejecting)
    assert isinstance(answer, CatalogAnswer)
    assert [(call.method, call.path) for call in calls] == [("PUT", "/v1/catalogs/shop/items")] * 3
    assert [(one.line, one.reason) for one in answer.results] == [(1, "because"), (4, "because"), (7, "because")]
    assert answer.counts == {"accepted": 5, "rejected": 3}
    assert seen == [3, 6, 8]
    # Lines of a file, empty ones too, keep their numbers; a call with nothing in it is not sent.
    raw = [b"\n", b"\n", b"\n", b'{"id": 1}\n', b"\n", b'{"id": 2}\n']
    answer, calls = carried_out(shop.patch(raw), rejecting)
    assert len(calls) == 1
    assert [one.line for one in answer.results] == [4]
    monkeypatch.setattr(client_requests, "BYTES", 30)
    _, calls = carried_out(shop.put([{"id": i, "text": "x" * 20} for i in range(3)]), rejecting)
    assert len(calls) == 3


def test_what_is_no_list_of_items_is_said() -> None:
    shop = client_requests.CatalogRequests(Exchange("http://127.0.0.1:1", 0), "shop")
    with pytest.raises(InvalidInput):
        carried_out(shop.put({"id": 1}), rejecting)  # type: ignore[dict-item]
    with pytest.raises(InvalidInput, match="JSON"):
        carried_out(shop.put([{"id": object()}]), rejecting)


def test_from_the_file_to_a_list(
    tmp_path: Path, start_service: Callable[..., Service], capsys: pytest.CaptureFixture[str]
) -> None:
    service = start_service(store=str(tmp_path / "store.db"))
    url = f"http://127.0.0.1:{service.port}"
    file = tmp_path / "items.ndjson.gz"
    lines = [json.dumps({"id": f"i{i}", "price": i}) for i in range(30)]
    file.write_bytes(gzip.compress("\n".join(["", *lines, '{"id": "bad", "price": "x"}']).encode()))
    run(["catalog", "load", str(file), "--catalog", "shop", "--url", url], 1)  # a nightly job is to notice
    said = capsys.readouterr()
    assert said.out == "shop: 30 accepted, 1 rejected\n"
    assert "items.ndjson.gz:32: field 'price' holds numbers, but here it is 'x'" in said.err.replace("\n", "")
    run(["catalog", "load", str(file), "--catalog", "shop", "--url", url, "--json"], 1)
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"rejected": 1, "unchanged": 30}
    assert [one["line"] for one in told["rejected"]] == [32]
    with Client(url, timeout=PATIENCE, rank_timeout=PATIENCE) as client:
        shop = client.catalog("shop")
        assert shop.get("i7") == {"price": 7}
        assert shop.patch([{"id": "i7", "brand": "acme"}]).counts == {"accepted": 1}
        assert shop.users.put([{"id": "u", "age": 3}]).counts == {"accepted": 1}
        price = {"name": "price", "kind": "field", "of": "item.price", "default": 0}
        client.put_ranker("shop", features=[price], catalog="shop", learner="pairrank", wait=True)
        wait_for(lambda: shop.info().items.held and not shop.info().items.behind, "the items to be held")
        answer = client.rank("shop", ids=["i3", "i7", "nobody"], fields={"device": "phone"})
        assert sorted(str(item.id) for item in answer.items) == ["i3", "i7", "nobody"]
        (info,) = client.catalogs()
        assert (info.items.count, info.users.count, info.unknown_ids, info.rankers) == (30, 1, 1, ["shop"])
        assert info.memory > 0
        deleted = shop.delete(["i1", "nobody"])
        assert (deleted.counts, [one.id for one in deleted.results]) == ({"deleted": 1, "unknown": 1}, ["nobody"])
        assert shop.clear() == 29
        with pytest.raises(ServiceError, match="'shop'") as told:
            shop.drop()
        assert (told.value.status, told.value.error) == (409, "in-use")
        shop.drop(force=True)
        with pytest.raises(ServiceError, match=r"catalog.*'shop'"):
            shop.info()
    run(["catalog", "show", "--url", url, "--json"])
    assert json.loads(capsys.readouterr().out) == []
