"""What the clients send to be ranked: the shortest form for what the caller has, with the values that it has."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

from rankloop import Candidates
from rankloop.client import Client
from rankloop.core.errors import InvalidInput
from rankloop.service.serving.schema import RankCall, Schema
from rankloop.wire.calls import Candidate
from rankloop.wire.rankers import Spec
from tests.service.app_fixtures import Service, service
from tests.service.asking import ANSWER, Go, go
from tests.service.scripted import Said, Server, script
from tests.waiting import PATIENCE

__all__ = ["go", "service"]  # fixtures
ROWS = np.array([[0.1, 9.0], [1 / 3, 49.0]])
ENDS: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("rows by name", lambda: {"candidates": [{"id": i, "features": {"b": y, "a": x}} for i, (x, y) in named()]}),
    ("rows as lists", lambda: {"candidates": [{"id": i, "features": [x, y]} for i, (x, y) in named()]}),
    ("rows as arrays", lambda: {"candidates": [Candidate(i, row) for i, row in zip("pq", ROWS, strict=True)]}),
    ("candidates", lambda: {"candidates": Candidates("red", ["p", "q"], ROWS)}),
    ("an array", lambda: {"ids": ["p", "q"], "features": ROWS}),
    ("an array of objects", lambda: {"ids": np.array(["p", "q"]), "features": np.asfortranarray(ROWS).astype(object)}),
    ("lists", lambda: {"ids": ("p", "q"), "features": ROWS.tolist()}),
    ("columns", lambda: {"ids": ["p", "q"], "features": {"b": ROWS[:, 1], "a": ROWS[:, 0].tolist()}}),
    ("pandas", lambda: {"ids": pd.Series(["p", "q"]), "features": pd.DataFrame({"b": ROWS[:, 1], "a": ROWS[:, 0]})}),
    ("polars", lambda: {"ids": pl.Series(["p", "q"]), "features": pl.DataFrame({"b": ROWS[:, 1], "a": ROWS[:, 0]})}),
    ("Arrow", lambda: {"ids": pa.array(["p", "q"]), "features": pa.table({"b": ROWS[:, 1], "a": ROWS[:, 0]})}),
]


def named() -> list[tuple[str, list[float]]]:
    return list(zip("pq", ROWS.tolist(), strict=True))


def sent(go: Go, *arguments: Any, **named: Any) -> Any:
    with Server(script(Said(200, ANSWER))) as server:
        go(server.url, "rank", "shop", *arguments, request_id="r", **named)
    return server.asked[0]


def understood(body: bytes, **spec: Any) -> RankCall:
    return Schema(Spec(features=["a", "b"], **spec)).parse(body)


@pytest.mark.parametrize("end", [make for _, make in ENDS], ids=[name for name, _ in ENDS])
def test_whatever_holds_candidates_arrives_as_the_same_request(end: Callable[[], dict[str, Any]], go: Go) -> None:
    call = understood(sent(go, **end(), query="red", k=1, user="u").body)
    assert call[:5] == ("red", 1, "r", "u", ["p", "q"])
    assert call.rows is not None
    assert call.rows.tobytes() == ROWS.tobytes()


def test_a_table_of_numbers_travels_packed_and_names_as_columns(go: Go) -> None:
    packed = base64.b64encode(ROWS.tobytes()).decode()
    for name, make in ENDS:
        found = sent(go, **make()).json
        if name in ("rows by name", "columns", "pandas", "polars", "Arrow"):
            assert found["features"] == {"b": [9.0, 49.0], "a": [0.1, 1 / 3]}
        else:
            assert found["features"] == packed, name
    short = sent(go, ids=["p", "q"], features=ROWS.astype(np.float32))
    assert short.json["features"] == base64.b64encode(ROWS.astype("<f4").tobytes()).decode()
    call = understood(short.body)
    assert call.rows is not None
    assert call.rows.tolist() == ROWS.astype(np.float32).tolist()


def test_rows_of_several_kinds_and_none(go: Go) -> None:
    mixed = [{"id": "p", "features": [0.1, 2.0]}, {"id": "q", "features": {"a": 1, "b": 2}}]
    assert sent(go, mixed).json["candidates"][1]["features"] == {"a": 1.0, "b": 2.0}
    several = [{"id": "p", "features": {"a": 0.1, "b": 2.0}}, {"id": "q", "features": {"a": 1}}]
    assert sent(go, several).json["candidates"][1]["features"] == {"a": 1.0}
    ragged = [{"id": "p", "features": [0.1, 2.0]}, {"id": "q", "features": [1]}, {"id": "r"}]
    assert [row["features"] for row in sent(go, ragged).json["candidates"]] == [[0.1, 2.0], [1.0], None]
    assert sent(go, Candidates("red", [7, 9])).json["ids"] == [7, 9]
    assert sent(go, ids=[np.int64(7), 9]).json["features"] is None
    large = [{"id": 7, "features": [1e308, 1e308]}]
    assert sent(go, large).json["features"] == base64.b64encode(np.array([1e308, 1e308]).tobytes()).decode()


@pytest.mark.parametrize(
    "named",
    [
        {"candidates": [{"id": "p", "features": [None, 1.0]}]},
        {"candidates": [{"id": "p", "features": [float("nan"), 1.0]}]},
        {"candidates": [{"id": "p", "features": {"a": float("nan"), "b": 1.0}}]},
        {"candidates": [{"id": "p", "features": {"b": 1.0}}]},
        {"ids": ["p"], "features": [[None, 1.0]]},
        {"ids": ["p"], "features": np.array([[np.nan, 1.0]], dtype=np.float32)},
        {"ids": ["p"], "features": {"a": [None], "b": [1.0]}},
        {"ids": ["p"], "features": pl.DataFrame({"a": [None], "b": [1.0]}, schema={"a": pl.Float64, "b": pl.Float64})},
    ],
)
def test_what_is_missing_arrives_as_missing(go: Go, named: dict[str, Any]) -> None:
    body = sent(go, **named).body
    rows = understood(body, defaults={"a": 5.0}).rows
    assert rows is not None
    assert rows.tolist() == [[5.0, 1.0]]
    with pytest.raises(InvalidInput, match="'a'"):
        understood(body)


@pytest.mark.parametrize(
    ("named", "pattern"),
    [
        ({}, "either candidates, or ids"),
        ({"candidates": [{"id": "p"}], "ids": ["p"]}, "either candidates, or ids"),
        ({"candidates": [{"id": "p"}], "features": ROWS}, "given with candidates"),
        ({"ids": "pq", "features": ROWS}, "ids are 'pq'"),
        ({"ids": ["p"], "features": ROWS}, r"shape \(2, 2\)"),
        ({"ids": ["p", "q"], "features": [1.0, 2.0]}, r"shape \(2,\)"),
        ({"ids": ["p", "q"], "features": [["a", "b"], ["c", "d"]]}, "not a table of numbers"),
        ({"ids": ["p", "q"], "features": [[1.0, 2.0], [1.0, np.inf]]}, r"features\[1, 1\] is inf"),
        ({"ids": ["p", "q"], "features": {"a": [1.0]}}, r"'a' is a column of shape \(1,\)"),
        ({"ids": ["p"], "features": {"a": [np.inf]}}, "has infinity"),
        ({"ids": ["p"], "features": {"a": ["high"]}}, "'a' does not hold numbers"),
    ],
)
def test_what_is_no_table_is_told_before_it_is_sent(go: Go, named: dict[str, Any], pattern: str) -> None:
    with Server(script(Said(200, ANSWER))) as server, pytest.raises(InvalidInput, match=pattern):
        go(server.url, "rank", "shop", **named)
    assert server.asked == []


def test_the_service_takes_what_the_client_sends(service: Service) -> None:
    """Through HTTP and back: the same list and the same scores, whichever form was sent."""
    service.put("forms", learner="greedy", features=["a", "b"], exposure="full", defaults={"b": 9.0})
    found = []
    for _, make in ENDS:
        body: list[bytes] = []
        with Client("http://127.0.0.1", rank_timeout=PATIENCE) as client:
            client._http.close()
            client._http = _through(service, body)
            found.append([(item.id, item.score) for item in client.rank("forms", **make(), query="red").items])
        assert len(body) == 1
    assert len({item for item, _ in found[0]}) == 2
    assert all(one == found[0] for one in found)


def _through(service: Service, bodies: list[bytes]) -> Any:
    """The service of this process, where a client expects its network."""

    class Http:
        def stream(self, method: str, url: str, content: bytes | None, headers: Any, extensions: Any) -> Any:
            bodies.append(content or b"")
            return service.http.stream(method, url, content=content, headers=headers, extensions=extensions)

        def close(self) -> None:
            """Nothing was opened."""

    return Http()
