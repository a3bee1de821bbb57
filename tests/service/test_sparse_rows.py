"""Rankers of a hundred thousand hashed columns: both forms of a request, the log, a restart, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.core.types import SparseRows
from rankloop.features import hashing
from rankloop.service.serving import request_body
from rankloop.service.serving.request_body import SparseReader
from rankloop.wire.calls import Candidate, RankRequest
from tests.service.app_fixtures import Service, fine, refused, service
from tests.service.truths import read

__all__ = ["service"]

WIDTH = 100_000
SPEC: Any = {
    "learner": "hybrid",
    "parameters": {"confidence": "diagonal", "init": "zero"},
    "width": WIDTH,
    "normalization": "none",
    "exposure": "full",
    "k": 4,
}
SHOES: list[Any] = [{"id": i, "features": {f"brand={i}": 1, f"shop & brand={i}": 1, "price": 0.1}} for i in "abcdef"]


def rank(service: Service, name: str, sent: Any) -> Any:
    return fine(service.http.post(f"/v1/rankers/{name}/rank", json=sent))


def ranked_by(service: Service, answer: Any) -> SparseRows:
    """The rows that were stored with an impression."""
    sql = "SELECT body FROM impressions WHERE id = ?"
    ((stored,),) = read(service.engine.settings.store, sql, answer["impression_id"])
    rows = codec.load_impression(stored).features
    assert isinstance(rows, SparseRows)
    return rows


def test_hashed_features_are_learned_and_survive_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "wide.db"
    with Service(store) as service:
        service.ready().put("wide", **SPEC)
        for t in range(60):
            answer = rank(service, "wide", {"query": f"q{t}", "candidates": SHOES})
            assert not answer["fallback"], answer["reason"]
            seen = [item["id"] for item in answer["items"]]
            service.report(answer, ["e"] if "e" in seen else [])
        assert service.settle("wide") == 60
        service.act("wide", "pause")
        last = rank(service, "wide", {"query": "new", "candidates": SHOES})
        assert last["items"][0]["id"] == "e"
        rows = ranked_by(service, last)
        assert rows.shape == (4, WIDTH)
        wanted = hashing.hashed(["brand", "shop & brand", "price"], ["e", "e", 0.1], WIDTH)[0]
        assert sorted(rows.take(np.array([0])).indices.tolist()) == sorted(wanted.tolist())
    with Service(store) as service:
        again = rank(service.ready(), "wide", {"query": "new", "candidates": SHOES})
        assert again["items"][0] == last["items"][0]


def test_csr_rows_equal_named_rows(service: Service) -> None:
    service.put("rows", **SPEC)
    named = RankRequest(candidates=[Candidate(one["id"], one["features"]) for one in SHOES])
    rows = SparseReader(WIDTH).rows(named)
    table = {name: getattr(rows, name).tolist() for name in ("indptr", "indices", "values")}
    answers = [
        rank(service, "rows", {"query": "q", "request_id": "one", **form})
        for form in ({"candidates": SHOES}, {"ids": list("abcdef"), "features": table})
    ]
    assert answers[0] == answers[1], "the same request, whichever way it was written"
    assert ranked_by(service, answers[0]).width == WIDTH


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"candidates": [{"id": "a", "features": [1.0]}]}, "features"),
        ({"candidates": [{"id": "a", "features": {"x": 1.0}}, {"id": "b"}]}, "'b'"),
        ({"candidates": [{"id": "a", "features": {"x": None}}]}, "'a'"),
        ({"ids": ["a"], "features": [[1.0]]}, ""),
        ({"ids": ["a"]}, ""),
        ({"ids": ["a"], "features": {"indptr": [0, 1], "indices": [0.5], "values": [1]}}, "0.5"),
        ({"ids": ["a"], "features": {"indptr": [0, 1], "indices": [WIDTH], "values": [1]}}, "width"),
        ({"ids": ["a"], "features": {"indptr": [0, 1], "indices": [None], "values": [1]}}, ""),
        ({"ids": ["a", "b"], "features": {"indptr": [0, 1], "indices": [1], "values": [1]}}, ""),
        ({"ids": ["a"], "features": {"indptr": [0, 1], "indices": [1], "values": [1e200]}}, "1e+100"),
    ],
)
def test_errors_of_sparse_rows_name_the_value(service: Service, sent: Any, words: str) -> None:
    if "bad" not in service.engine.rankers:
        service.put("bad", **SPEC)
    refused(service.http.post("/v1/rankers/bad/rank", json=sent), 422, words, error="invalid")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"features": ["a"]}, "leave out features and defaults"),
        ({"normalization": "query-minmax"}, "set normalization to none"),
        ({"parameters": {}}, "takes no sparse rows; choose pairrank or hybrid"),
        ({"learner": "pdgd", "parameters": {}}, "takes no sparse rows"),
        ({"width": 2_000_000}, "the limit max_width is 1000000"),
    ],
)
def test_a_spec_that_cannot_be_is_named(service: Service, changes: Any, words: str) -> None:
    answer = service.http.put("/v1/rankers/never", json={**SPEC, **changes})
    assert answer.status_code in (413, 422), answer.text
    assert words in answer.json()["message"]


def test_cache_of_hashed_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "MOST_NAMES", 4)
    reader = SparseReader(WIDTH)
    for t in range(10):
        given: dict[str, float | None] = {f"item={t}": 1.0, "price": 0.5, "name without a value=": 2.0}
        rows = reader.rows(RankRequest(candidates=[Candidate("a", given), Candidate("b", {})]))
        assert len(reader._known) <= 4
        codes = np.concatenate([hashing.category_codes("item", [str(t)]), hashing.number_code("price")])
        assert set(hashing.columns(codes, WIDTH)[0].tolist()) < set(rows.indices.tolist())
        assert rows.indptr.tolist() == [0, 3, 3]
