"""Features that are added, removed, renamed and scaled otherwise: what was learned about the others stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rankloop.core import codec
from rankloop.core.rng import Rng
from rankloop.core.scaling import SIZES
from rankloop.core.types import Feedback, Impression
from rankloop.service.maintenance.archive.exporting import export_log
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.ranking import model as models
from rankloop.service.ranking import spec_changes
from rankloop.service.serving import engine
from rankloop.service.storage import impressions, lineage, rankers
from rankloop.service.storage.lineage import RecordedChange
from tests.service.app_fixtures import Body, Service, fine, refused, shown, until

OLD, NEW = ["a", "b", "c"], ["c2", "new", "a"]
RENAMED = {"c": "c2"}
SOURCE = [2, -1, 0, 3]  # of the weights; the last is that of the baseline ranking


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("evolution") / "store.db")
    server: Any = request.getfixturevalue("postgres")
    return str(server.database())


@pytest.fixture(scope="module")
def service(url: str) -> Iterator[Service]:
    with Service(url) as running:  # type: ignore[arg-type]
        yield running.ready()


def candidates(names: list[str], seed: int = 0, n: int = 6) -> list[Body]:
    rng = np.random.default_rng(seed)
    return [
        {"id": f"i{i}", "features": dict(zip(names, rng.random(len(names)).tolist(), strict=True))} for i in range(n)
    ]


def teach(service: Service, name: str, names: list[str], rounds: int, seed: int = 0) -> None:
    """A user who likes the feature that was called `a` from the beginning."""
    for t in range(rounds):
        some = candidates(names, seed + t)
        answer = service.rank(name, some, query=f"q{t % 3}")
        liked = {one["id"]: one["features"]["a"] for one in some}
        assert service.report(answer, [max(shown(answer), key=liked.__getitem__)]) == "accepted"
    service.settle(name)


def change(service: Service, name: str, **fields: Any) -> Body:
    answer: Body = fine(service.http.put(f"/v1/rankers/{name}", json=fields))
    service.settle(name)
    return answer


def arrays(state: bytes) -> dict[str, np.ndarray]:
    return codec.loads(state)[0]


def picked(values: np.ndarray, source: list[int]) -> np.ndarray:
    return np.array([0.0 if i < 0 else values[i] for i in source])


# -- the change --------------------------------------------------------------------------------------------------------


def test_other_features_keep_what_was_learned(service: Service) -> None:
    service.put("stays", features=OLD, exposure="full")
    teach(service, "stays", OLD, 20)
    before, known = arrays(service.state("stays")), service.status("stays")["model_impressions"]
    answer = change(service, "stays", features=NEW, renamed=RENAMED)
    told = answer["changed"]
    assert told["fields"] == ["features"]
    assert (told["carried"], told["renamed"]) == (["c2", "a"], RENAMED)
    assert (told["added"], told["removed"]) == (["new"], ["b"])
    assert told["rule"]
    after = arrays(service.state("stays"))
    np.testing.assert_array_equal(after["theta_"], picked(before["theta_"], SOURCE))
    kept = [2, 0, 3]
    np.testing.assert_array_equal(
        after["inverse_"][np.ix_([0, 2, 3], [0, 2, 3])], before["inverse_"][np.ix_(kept, kept)]
    )
    for name in before:
        if name.startswith("memory_"):
            np.testing.assert_array_equal(after[name], before[name])
    status = service.status("stays")
    assert (status["origin"]["how"], status["origin"]["kept"], status["model_impressions"]) == (
        "changed",
        told["kept"],
        known,
    )
    assert "renamed" not in status["spec"]
    assert change(service, "stays", features=NEW, renamed=RENAMED)["changed"]["fields"] == []  # a deployment script
    teach(service, "stays", NEW, 5, seed=100)
    assert service.rank("stays", candidates(NEW))["fallback"] is False


@pytest.mark.parametrize("scaling", ["query-minmax", "stream"])
def test_earlier_impressions_are_learned_with_mapped_columns(service: Service, scaling: str) -> None:
    name = f"open-{scaling}"
    service.put(name, features=OLD, normalization=scaling, exposure="full")
    teach(service, name, OLD, 5)
    some = candidates(OLD, 77)
    answer = service.rank(name, some, query="q1")
    old = service.state(name)
    change(service, name, features=NEW, renamed=RENAMED)

    def read(connection: Any) -> tuple[Any, list[RecordedChange], Any]:
        body = impressions.impressions_by_id(connection, "body", [answer["impression_id"]])[answer["impression_id"]][0]
        return rankers.get_ranker(connection, name), lineage.spec_changes(connection, name), body

    row, changes, body = service.engine.database.read(read)
    learner = models.load_learner(row.spec, old, "the state before", changes)
    assert models.state_bytes(row.spec, learner.state()) == service.state(name)
    impression = codec.load_impression(bytes(body))
    rows = np.zeros((impression.k, 3))
    rows[:, [0, 2]] = impression.features[:, [2, 0]]
    memo = dict(impression.memo)
    if scaling == "stream":
        then, memo[SIZES] = memo[SIZES], np.full((2, 3), np.nan)  # nothing is known of the size of a new feature
        memo[SIZES][:, [0, 2]] = then[:, [2, 0]]
    clicked = shown(answer)[2]
    values = np.array([float(item == clicked) for item in impression.items])
    learner.learn(
        impression._replace(features=rows, memo=memo), Feedback("clicks", values), Rng(0).for_event("learn", 5)
    )

    assert service.report(answer, [clicked]) == "accepted"
    assert service.settle(name) == 6
    assert service.state(name) == models.state_bytes(row.spec, learner.state())


def test_impressions_before_the_first_outcome_are_learned(service: Service) -> None:
    service.put("early", features=OLD, exposure="full")
    answer = service.rank("early", candidates(OLD))
    told = change(service, "early", features=NEW)["changed"]
    assert told["kept"] is None
    assert service.report(answer, ["i1"]) == "accepted"
    assert service.settle("early") == 1
    assert arrays(service.state("early"))["theta_"].size == 4


def test_feedback_before_a_reset_stays_late_after_a_change(service: Service) -> None:
    service.put("reset", features=OLD, exposure="full")
    teach(service, "reset", OLD, 2)
    gone = service.rank("reset", candidates(OLD))
    service.act("reset", "reset")
    teach(service, "reset", OLD, 2)
    still = service.rank("reset", candidates(OLD))
    change(service, "reset", features=NEW)
    assert service.report(gone, ["i1"]) == "late"
    assert service.report(still, ["i1"]) == "accepted"


# -- versions ----------------------------------------------------------------------------------------------------------


def test_rollback_follows_all_renames(service: Service) -> None:
    service.put("back", features=OLD, exposure="full")
    teach(service, "back", OLD, 8)
    first = arrays(service.state("back"))["theta_"]
    version = change(service, "back", features=NEW, renamed=RENAMED)["changed"]["kept"]
    teach(service, "back", NEW, 4, seed=50)
    change(service, "back", features=["c3", "c", "a"], renamed={"c2": "c3"})
    teach(service, "back", ["c3", "c", "a"], 4, seed=90)
    live = service.state("back")
    service.act("back", "rollback", version=version)
    service.settle("back")
    np.testing.assert_array_equal(arrays(service.state("back"))["theta_"], picked(first, SOURCE))
    teach(service, "back", ["c3", "c", "a"], 1)
    service.act("back", "rollback")  # to the newest version: undoes it
    service.settle("back")
    service.act("back", "rollback", version=version + 2)
    service.settle("back")
    assert service.state("back") == live


def test_promoted_versions_rank_with_new_features(service: Service) -> None:
    service.put("promoted", features=OLD, exposure="full")
    teach(service, "promoted", OLD, 5)
    service.act("promoted", "promote")
    teach(service, "promoted", OLD, 5, seed=40)
    change(service, "promoted", features=NEW, renamed=RENAMED)
    answer = service.rank("promoted", candidates(NEW))
    assert (answer["version"], answer["fallback"]) == ("v1", False)


def test_a_restart_loads_the_same_state_and_replay_gives_the_same_bits(store_url: str, tmp_path: Path) -> None:
    with Service(store_url) as service:  # type: ignore[arg-type]
        service.ready()
        service.put("again", features=OLD, exposure="full")
        teach(service, "again", OLD, 6)
        open_ = service.rank("again", candidates(OLD, 3))
        change(service, "again", features=NEW, renamed=RENAMED)
        state = service.state("again")
    with Service(store_url) as service:  # type: ignore[arg-type]
        service.ready()
        service.settle("again")
        assert service.state("again") == state
        assert service.report(open_, ["i2"]) == "accepted"
        teach(service, "again", NEW, 4, seed=30)
        service.act("again", "versions")
        change(service, "again", features=[*NEW, "last"])
        teach(service, "again", [*NEW, "last"], 3, seed=60)
        service.act("again", "rollback", version=1)
        service.settle("again")
        teach(service, "again", [*NEW, "last"], 2, seed=70)
        service.act("again", "versions")
        versions = [one["version"] for one in service.versions("again")]
    with open_store(store_url) as database:
        export_log(database, tmp_path / "log", ["again"])
        for source in (database, tmp_path / "log"):
            for version in versions:
                found = rebuild(source, "again", version=version)
                assert found.equal, (source, version, found.compared)
            assert rebuild(source, "again").equal


def test_outcomes_that_are_not_learned_yet_are_learned_after_the_change(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Service(store_url) as service:  # type: ignore[arg-type]
        service.ready().put("late", features=OLD, exposure="full")
        teach(service, "late", OLD, 4)
    with Service(store_url, learn=False) as service:  # type: ignore[arg-type]
        service.ready()
        until(lambda: "late" in service.engine.rankers, "the ranker")
        for seed in range(3):
            answer = service.rank("late", candidates(OLD, seed))
            assert service.report(answer, [shown(answer)[1]]) == "accepted"
        with monkeypatch.context() as hasty:
            hasty.setattr(engine, "CURRENT_SECONDS", 0.1)  # nobody learns
            told = fine(service.http.put("/v1/rankers/late", json={"features": NEW, "renamed": RENAMED}))
        assert told["changed"]["kept"] == 1
        (kept,) = (one for one in service.versions("late") if one["version"] == 1)
        assert kept["learned_impressions"] == 4
    with Service(store_url) as service:  # type: ignore[arg-type]
        service.ready()
        assert service.settle("late") == 7
        assert service.status("late")["model_impressions"] == 7
        service.act("late", "versions")
    with open_store(store_url) as database:
        found = rebuild(database, "late", version=2)
        assert (found.start, found.learned, found.failed, found.equal) == ("changed", 3, 0, True)


# -- rules -------------------------------------------------------------------------------------------------------------


def test_impossible_renames_are_refused(service: Service) -> None:
    service.put("named", features=OLD, exposure="full")
    teach(service, "named", OLD, 2)
    for renamed in ({"a": "b", "b": "a"}, {"prize": "new"}, {"c": "nowhere"}, {"b": "new", "c": "new"}):
        response = service.http.put("/v1/rankers/named", json={"features": ["a", "new"], "renamed": renamed})
        refused(response, 422)
    assert service.status("named")["spec"]["features"] == OLD


@pytest.mark.parametrize(
    ("before", "after", "carries"),
    [
        ("query-minmax", "stream", True),
        ("stream", "query-minmax", True),
        ("stream", "none", True),
        ("none", "stream", False),
        ("query-minmax", "none", False),
    ],
)
def test_another_scaling(service: Service, before: str, after: str, carries: bool) -> None:
    name = f"scaled-{before}-{after}"
    service.put(name, learner="pairrank", features=OLD, exposure="full", normalization=before)
    teach(service, name, OLD, 30)
    answer = service.rank(name, candidates(OLD, 5))
    told = change(service, name, normalization=after)["changed"]
    assert told["carried"] == (OLD if carries else [])
    theta = arrays(service.state(name))["theta_"]
    assert bool(theta.size > 0 and theta[0] == theta[:3].max()) is carries
    assert service.report(answer, ["i0"]) == "accepted"
    teach(service, name, OLD, 3, seed=60)
    assert service.rank(name, candidates(OLD))["fallback"] is False


# -- without a service -------------------------------------------------------------------------------------------------


def fixed(features: list[Any], normalization: str = "query-minmax") -> dict[str, Any]:
    spec = {"learner": "pairrank", "parameters": {}, "features": features, "normalization": normalization, "seed": 0}
    return msgspec.to_builtins(spec)  # type: ignore[no-any-return]


def test_reused_feature_names_belong_to_the_new_feature() -> None:
    assert spec_changes.names_after(["a", "b"], [{}, {"a": "b"}]) == ["b", None]  # b was removed before a took its name
    assert spec_changes.names_after(["a", "b"], [{"a": "b", "b": "c"}]) == ["b", "c"]
    assert spec_changes.names_after(["a"], [{"a": "b"}, {"b": "c"}]) == ["c"]


def test_category_columns_are_matched_by_value() -> None:
    def brand(values: list[str]) -> dict[str, Any]:
        return {"name": "brand", "kind": "category", "of": "item.brand", "values": values}

    columns = spec_changes.columns_between(fixed(["a", brand(["x", "y"])]), fixed([brand(["z", "y"]), "a"]), [])
    assert columns.source.tolist() == [-1, 2, 0]
    hashed = {"name": "brand", "kind": "category", "of": "item.brand", "buckets": 2}
    columns = spec_changes.columns_between(fixed([hashed]), fixed([{**hashed, "buckets": 3}]), [])
    assert columns.source.tolist() == [-1, -1, -1]


def test_earlier_rows_are_converted_to_the_current_scale() -> None:
    rows = np.array([[10.0, 5.0], [20.0, 5.0], [30.0, 5.0]])
    sizes = np.array([[20.0, 5.0], [8.0, 0.0]])

    def carried(before: str, after: str, rows: np.ndarray, memo: dict[str, np.ndarray]) -> Impression:
        change = RecordedChange(fixed(["a", "b"], before), fixed(["b", "a", "c"], after), {})
        mapped = spec_changes.CarriedImpressions(models.unchecked_learner(change.after), change.after, [change])
        return mapped.carried(Impression("q", np.arange(3), np.array(list("xyz")), rows, memo))

    found = carried("stream", "stream", rows, {SIZES: sizes})
    np.testing.assert_array_equal(found.features, [[5.0, 10.0, 0.0], [5.0, 20.0, 0.0], [5.0, 30.0, 0.0]])
    np.testing.assert_array_equal(found.memo[SIZES], [[5.0, 20.0, np.nan], [0.0, 8.0, np.nan]])
    found = carried("query-minmax", "stream", np.array([[0.0, 1.0], [0.5, 1.0], [1.0, 1.0]]), {})
    np.testing.assert_allclose(found.features[:, 1], [-0.5, 0.0, 0.5])
    assert np.isnan(found.memo[SIZES]).all()
    found = carried("stream", "query-minmax", rows, {SIZES: sizes})
    assert found.features[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert 0.0 <= found.features[0, 1] < 0.5 == found.features[1, 1] < found.features[2, 1] <= 1.0
    found = carried("none", "query-minmax", rows, {})
    assert found.features[:, 1].tolist() == [0.0, 0.5, 1.0]
    found = carried("query-minmax", "none", rows, {})
    assert not found.features.any()
