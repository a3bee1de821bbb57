"""Declared categories that are hashed into a hundred thousand columns: ranked, stored and replayed as sparse rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.core import codec
from rankloop.core.errors import InvalidParameter
from rankloop.core.types import SparseRows
from rankloop.service.offline.inspection import inspect
from rankloop.service.offline.replay import export_ranker, open_store, rebuild
from rankloop.service.ranking.feature_spec import check_features
from rankloop.wire.rankers import Spec
from tests.service.app_fixtures import Service, fine, service, until
from tests.service.truths import read

__all__ = ["service"]

BUCKETS = 100_000
FEATURES: list[Any] = [
    {"name": "brand", "kind": "category", "of": "item.brand", "buckets": BUCKETS},
    "bm25",
    {"name": "taste", "kind": "category", "of": ["request.device", "item.brand"], "buckets": BUCKETS},
    {"name": "price", "kind": "field", "of": "item.price", "log": True},
]
WIDTH = 2 * BUCKETS + 2
SPEC: dict[str, Any] = {
    "learner": "pairrank",
    "parameters": {"confidence": "diagonal", "init": "zero"},
    "features": FEATURES,
    "catalog": "shop",
    "normalization": "none",
    "exposure": "full",
    "k": 6,
}
IDS = list("abcdef")


def ask(service: Service, device: str, explain: bool = False) -> Any:
    asked = {"ids": IDS, "query": "q", "fields": {"device": device}, "features": {"bm25": [0.2, 0, 0, 0.1, 0, 0]}}
    return fine(service.http.post("/v1/rankers/shop/rank" + "?explain=true" * explain, json=asked))


def begun(service: Service) -> None:
    items = [{"id": item, "brand": f"brand {item}", "price": 0} for item in IDS]
    fine(service.ready().http.put("/v1/catalogs/shop/items", json=items))
    service.put("shop", **SPEC)
    until(lambda: fine(service.http.get("/v1/catalogs/shop"))["items"]["behind"] == 0, "the catalog")


def test_wide_declared_features_are_learned_explained_and_replayed(tmp_path: Path) -> None:
    """On phones e is liked, elsewhere b: only a column of a cross can tell."""
    store = tmp_path / "wide.db"
    liked = {"phone": "e", "desk": "b"}
    with Service(store, snapshot_seconds=0.2) as service:
        begun(service)
        for t in range(80):
            device = ("phone", "desk")[t % 2]
            answer = ask(service, device)
            assert not answer["fallback"], answer["reason"]
            service.report(answer, [one["id"] for one in answer["items"] if one["id"] == liked[device]])
        assert service.settle("shop") == 80
        service.act("shop", "pause")
        for device, best in liked.items():
            answer = ask(service, device, explain=True)
            assert believed_best(answer) == best
            check_explained(answer["items"])
        sql = "SELECT body FROM impressions WHERE id = ?"
        ((stored,),) = read(service.engine.settings.store, sql, answer["impression_id"])
        rows = codec.load_impression(stored).features
        assert isinstance(rows, SparseRows)
        assert rows.shape == (6, WIDTH)
        shown = [one["id"] for one in answer["items"]]
        wanted = [2 + (item in "ad") for item in shown]  # brand, its cross, and bm25 where there is one
        assert np.diff(rows.indptr).tolist() == wanted
        weights = fine(service.http.get("/v1/rankers/shop/weights?limit=5"))
        assert weights["features"] == WIDTH
        assert len(weights["weights"]) == 5
        assert any(one["feature"].startswith("taste#") for one in weights["weights"])
        learned = service.state("shop")
        assert len(learned) < 4_000_000
    with open_store(str(store)) as database:
        again = rebuild(database, "shop").learner.state()
        kept = codec.loads(learned)[0]
        assert kept.keys() == again.keys()
        assert all(kept[name].tobytes() == again[name].tobytes() for name in kept)
        found = inspect(database, "shop").learner
        assert 0 < len(found.weights) < 10_000
    with Service(store) as service:
        assert believed_best(ask(service.ready(), "phone")) == "e"
        row = service.engine.rankers["shop"].row
        with pytest.raises(InvalidParameter, match="200,002"):
            export_ranker(service.engine.database, row, "elasticsearch")


def believed_best(answer: Any) -> Any:
    """Which item has the highest score: of the list itself some is trial."""
    return max(answer["items"], key=lambda one: one["score"])["id"]


def check_explained(items: list[Any]) -> None:
    """What each item has, by name and nothing else, comes to its score."""
    for one in items:
        kinds = sorted(name.partition("#")[0] for name in one["features"])
        assert set(kinds) <= {"brand", "taste", "bm25"}
        assert kinds.count("brand") == kinds.count("taste") == 1
        total = sum(part["contribution"] for part in one["features"].values())
        assert one["score"] == pytest.approx(total)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parameters": {}}, "have 200,002 columns, but learner 'pairrank' takes no sparse rows; choose"),
        ({"learner": "pdgd", "parameters": {}}, "hash into 4,096 columns in all"),
        ({"normalization": "query-minmax"}, "set it to none"),
        ({"normalization": "stream"}, "set it to none"),
        ({"features": [{**FEATURES[0], "buckets": 2_000_000}]}, "2000000 columns; the limit max_width is 1000000"),
        ({"features": [*FEATURES, "brand"]}, "feature 'brand' occurs twice"),
        ({"features": [*FEATURES, "brand#4711"]}, "feature 'brand#4711' occurs twice"),
    ],
)
def test_a_spec_that_cannot_be_is_named(service: Service, changes: Any, words: str) -> None:
    answer = service.http.put("/v1/rankers/never", json={**SPEC, **changes})
    assert answer.status_code in (413, 422), answer.text
    assert words in answer.json()["message"]


def test_names_that_resemble_buckets_are_allowed() -> None:
    spec = Spec(features=[*FEATURES, "brand#100000", "brand#007", "#1"], catalog="shop", normalization="none")
    check_features(spec)
