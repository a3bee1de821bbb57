"""A ranker whose feature sizes are learned over the stream: the same bits wherever it is learned, and a way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from rankloop.cli import main
from rankloop.core import codec, registry
from rankloop.core.learner import Learner
from rankloop.core.scaling import StandardizedLearner
from rankloop.core.types import Candidates, Feedback
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.ranking.model import load_learner
from tests.export.engines import elasticsearch_scores, solr_scores
from tests.service.app_fixtures import Body, Service, fine, model_of, names, refused, shown, until

SIZES = np.array([20.0, 5000.0, 0.001])
SPEC: Body = {"features": names(3), "normalization": "stream", "exposure": "full", "seed": 5}


def some_items(seed: int, n: int = 7) -> list[Body]:
    rows = (np.random.default_rng(seed).random((n, 3)) + 1) * SIZES
    return [{"id": f"i{i}", "features": row} for i, row in enumerate(rows.tolist())]


def teach(service: Service, name: str, rounds: int, seed: int) -> None:
    """A user who likes feature 0 and what is cheap."""
    for t in range(rounds):
        candidates = some_items(seed + t)
        answer = service.rank(name, candidates, query=f"q{t % 3}")
        assert not answer["fallback"]
        liked = {c["id"]: c["features"][0] / 20.0 - c["features"][1] / 5000.0 for c in candidates}
        assert service.report(answer, [max(shown(answer), key=liked.__getitem__)]) == "accepted"
    service.settle(name)


def command(*words: str) -> int:
    """The exit code of `rankloop` with these words."""
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(str(end.value.code or 0))


def assert_ranks_alike(copy: Learner, learner: Learner) -> None:
    """A copy that follows by parts ranks as the learner does, bit for bit; its places in memory may be others."""
    assert copy.state().keys() == learner.state().keys()
    for t in range(12):
        rows = np.array([item["features"] for item in some_items(90 + t)])
        candidates = Candidates(f"q{t % 4}", [f"i{i}" for i in range(len(rows))], rows)
        lists = [one.rank(candidates, 5, np.random.default_rng(t)) for one in (copy, learner)]
        assert codec.dump_impression(lists[0]) == codec.dump_impression(lists[1])


def keep(service: Service, name: str) -> int:
    number: int = fine(service.http.post(f"/v1/rankers/{name}/versions"))["version"]
    return number


@pytest.mark.parametrize("learner", ["hybrid", "pairrank", "pdgd"])
def test_restart_rollback_and_replay_give_the_same_bits(learner: str, tmp_path: Path) -> None:
    """The store keeps rows as they came; scale and weights are one state, in snapshots, versions and publications."""
    url, states = str(tmp_path / "shop.db"), dict[int, bytes]()
    path: Any = url
    with Service(path, snapshot_seconds=0.2) as service:
        service.ready().put("shop", learner=learner, **SPEC)
        teach(service, "shop", 5, 0)
        states[keep(service, "shop")] = service.state("shop")
        teach(service, "shop", 6, 20)
        states[keep(service, "shop")] = service.state("shop")
        live = model_of(service.engine.rankers["shop"]).learner
        spec = service.engine.rankers["shop"].row.spec
        assert_ranks_alike(live, load_learner(spec, service.state("shop"), "the state"))
    with Service(path, snapshot_seconds=0.2) as service:
        service.ready()
        assert service.state("shop") == states[2]
        service.act("shop", "rollback", version=1)  # keeps v3
        assert service.state("shop") == states[1]
        teach(service, "shop", 7, 40)
        number = keep(service, "shop")
        states[number] = service.state("shop")
        bodies = service.engine.database.read(lambda c: c.rows("SELECT body FROM impressions LIMIT 3"))
        service.engine.database.close_thread()
        for (body,) in bodies:
            rows = codec.load_impression(bytes(body)).features
            assert rows is not None
            assert (rows / SIZES >= 1.0 - 1e-12).all()
    with open_store(url) as database:
        for version, state in states.items():
            found = rebuild(database, "shop", version=version)
            assert found.equal
            assert found.compared
            assert codec.dumps(found.learner.state()) == codec.dumps(codec.loads(state)[0])
    scaler = registry_scaler(states[2])
    assert scaler["lists"] == 11
    np.testing.assert_allclose(scaler["spread"] / SIZES, 1.0, atol=0.3)


def registry_scaler(state: bytes) -> dict[str, Any]:
    arrays = codec.loads(state)[0]
    return {"lists": int(arrays["scaler_lists_"][0]), "spread": arrays["scaler_spread_"]}


def test_replay_saves_what_can_be_loaded_and_tries_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path: Any = str(tmp_path / "shop.db")
    with Service(path) as service:
        service.ready().put("shop", learner="pairrank", **SPEC)
        teach(service, "shop", 12, 0)
        state = service.state("shop")
    out = tmp_path / "shop.rankloop"
    assert command("replay", "shop", "--store", path, "--out", str(out)) == 0
    learner = registry.load(out)
    assert isinstance(learner, StandardizedLearner)
    assert codec.dumps(learner.state()) == codec.dumps(codec.loads(state)[0])
    capsys.readouterr()
    assert command("replay", "shop", "--store", path, "--try", "pdgd", "--json") == 0
    tried = json.loads(capsys.readouterr().out)
    assert tried["lists"] == 12
    assert tried["learned_nothing"] == []
    assert command("inspect", str(out), "--json") == 0
    assert json.loads(capsys.readouterr().out)["learner"] == "pairrank"


def test_a_model_leaves_by_the_service_and_by_the_command(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The same bytes, the version in the name, and our order in the engine; what cannot be said is refused."""
    path: Any = str(tmp_path / "shop.db")
    with Service(path) as service:
        service.ready().put("shop", learner="pairrank", parameters={"init": "zero"}, **SPEC)
        refused(service.http.get("/v1/rankers/shop/export?to=json"), 422)
        teach(service, "shop", 30, 0)
        assert keep(service, "shop") == 1
        answer = service.http.get("/v1/rankers/shop/export?to=elasticsearch&version=1")
        assert answer.headers["content-type"].startswith("application/json")
        assert 'filename="shop-v1.json"' in answer.headers["content-disposition"]
        assert fine(answer)["model"]["name"] == "shop-v1"
        live = fine(service.http.get("/v1/rankers/shop/export?to=json"))
        assert live["name"] == "shop-live-30"
        graph = service.http.get("/v1/rankers/shop/export?to=onnx&version=1").content
        refused(service.http.get("/v1/rankers/shop/export?to=solr&version=7"), 404)
        refused(service.http.get("/v1/rankers/nobody/export?to=solr"), 404, "nobody")
        assert service.http.get("/v1/rankers/shop/export?to=vespa").status_code == 400
        assert service.http.get("/v1/rankers/shop/export?to=solr&version=new").status_code == 400
        scaled = {"normalization": "query-minmax", "exposure": "full"}
        service.put("within", learner="pairrank", features=names(3), **scaled)
        teach(service, "within", 3, 0)
        refused(service.http.get("/v1/rankers/within/export?to=solr"), 422, "normalization")

        rows = (np.random.default_rng(3).random((12, 3)) + 1) * SIZES
        listed = [{"id": str(i), "features": row} for i, row in enumerate(rows.tolist())]
        told = service.rank("shop", listed, query="never came", k=12)
        ours = {int(item["id"]): item["score"] for item in told["items"]}
        want = np.array([ours[i] for i in range(12)])
    theirs = elasticsearch_scores(answer.content, names(3), rows)
    np.testing.assert_allclose(theirs, want, atol=1e-5)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"features": rows})[0], want, atol=1e-6)

    assert command("export", "shop", "--store", path, "--to", "elasticsearch", "--version", "1") == 0
    assert capsysbinary.readouterr().out.strip() == answer.content
    out = str(tmp_path / "shop.onnx")
    assert command("export", "shop", "--store", path, "--to", "onnx", "--version", "1", "--out", out) == 0
    assert Path(out).read_bytes() == graph


def test_the_default_ranker_is_exported_to_each_engine_and_scored_there(tmp_path: Path) -> None:
    """A ranker of which nothing but the features is given, exported without options. For a query that never came, the
    engine's score and the share of the baseline that the note names make up the score here."""
    with Service(tmp_path / "shop.db") as service:
        fine(service.ready().http.put("/v1/rankers/shop", json={"features": names(3)}))
        until(lambda: service.engine.rankers["shop"].compiled, "the kernels")
        spec = service.status("shop")["spec"]
        assert (spec["learner"], spec["normalization"], spec["parameters"]["init"]) == ("hybrid", "stream", "base")
        ((stored,),) = service.engine.database.read(lambda c: c.rows("SELECT spec FROM rankers"))
        service.engine.database.close_thread()
        assert json.loads(stored)["normalization"] == "stream"  # spelled out: a later default does not change it
        fine(service.http.patch("/v1/rankers/shop", json={"timeout_ms": 60_000.0}))
        teach(service, "shop", 70, 0)  # more than until which values are cut
        assert keep(service, "shop") == 1
        learner: Any = model_of(service.engine.rankers["shop"]).learner
        rows = (np.random.default_rng(3).random((12, 3)) + 1) * SIZES
        ours = learner.score(Candidates("never came", features=rows))
        ours += learner.theta_[-1] * np.log(1.0 + np.arange(12))  # without the baseline
        for engine, scores in (
            ("elasticsearch", elasticsearch_scores),
            ("opensearch", elasticsearch_scores),
            ("solr", solr_scores),
        ):
            answer = service.http.get(f"/v1/rankers/shop/export?to={engine}&version=1")
            assert answer.status_code == 200, answer.text
            notes = json.loads(answer.headers["x-rankloop-notes"])
            assert any(f"{learner.theta_[-1]:.4g}" in note for note in notes)
            theirs = scores(answer.content, names(3), rows)
            np.testing.assert_allclose(theirs, ours, atol=1e-5)
        plain = fine(service.http.get("/v1/rankers/shop/export?to=json&version=1"))
        assert plain["base_order"] == learner.theta_[-1]
    for engine in ("elasticsearch", "opensearch", "solr"):
        out = tmp_path / f"{engine}.json"
        assert command("export", "shop", "--store", str(tmp_path / "shop.db"), "--to", engine, "--out", str(out)) == 0
        scores = solr_scores if engine == "solr" else elasticsearch_scores
        np.testing.assert_allclose(scores(out.read_bytes(), names(3), rows), ours, atol=1e-5)


def test_a_saved_learner_leaves_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.rankloop"
    learner: Any = registry.make("pairrank")
    rng = np.random.default_rng(0)
    shown_ = learner.rank(Candidates("q", features=rng.random((5, 2))), 5, rng)
    learner.learn(shown_, Feedback.clicks([0, 0, 1, 0, 0]), rng)
    registry.save(learner, path)
    assert command("export", str(path), "--to", "json", "--features", "a, b", "--normalization", "none") == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["features"]] == ["a", "b"]
    for arguments, words in (
        (["--to", "json"], "give --features"),
        (["--to", "solr", "--features", "a,b"], '"normalization": "stream"'),
    ):
        assert command("export", str(path), *arguments) == 2
        assert words in capsys.readouterr().err
