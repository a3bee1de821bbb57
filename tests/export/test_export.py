"""Exported models score as we do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnxruntime
import pytest

from rankloop.core import registry
from rankloop.core.errors import InvalidParameter, MissingExtra
from rankloop.core.learner import Learner
from rankloop.core.scaling import scaled, standardized
from rankloop.core.types import Array, Candidates, Feedback
from rankloop.integrations.export import Engine, Exported, export
from tests.export.engines import elasticsearch_scores, solr_scores

NAMES = ["title_bm25", "price", "age in days", "größe", "always 1"]
SIZES, OFFSETS = np.array([5.0, 4000.0, 1e-3, 2e6, 0.0]), np.array([0.0, 1000.0, 1e-2, 1e6, 1.0])


def some_rows(seed: int, n: int = 9) -> Array:
    """(n, 5) features as an engine has them: of very different sizes, in float32, one the same everywhere."""
    rows: Array = np.random.default_rng(seed).random((n, len(NAMES))) * SIZES + OFFSETS
    return rows.astype(np.float32).astype(np.float64)


def taught(learner: Any, rounds: int = 40, scale: bool = False) -> Any:
    """After some clicks on the highest of the first feature."""
    for t in range(rounds):
        rng = np.random.default_rng([5, t])
        rows = some_rows(t)
        candidates = Candidates(f"q{t % 4}", features=rows)
        shown = learner.rank(scaled(candidates) if scale else candidates, 5, rng)
        clicked = rows[shown.order, 0] - rows[shown.order, 1] / 2000.0 > 1.0
        learner.learn(shown, Feedback(learner.feedback, clicked.astype(np.float64)), rng)
    return learner


def made(spec: str, **more: Any) -> Any:
    name, parameters = registry.parse_learner(spec)
    return registry.make(name, **parameters, **more)


def score_of(learner: Learner, candidates: Candidates) -> Array:
    """(n,) scores of a linear learner or network."""
    found: Array = learner.score(candidates)  # type: ignore[attr-defined]
    return found


def run_onnx(found: Exported, rows: Array) -> Array:
    session = onnxruntime.InferenceSession(found.body, providers=["CPUExecutionProvider"])
    scores: Array = session.run(["scores"], {"features": rows})[0]
    return scores


def scored(engine: Engine, found: Exported, rows: Array) -> Array:
    """(n,) what the engine gives, whose feature set has one feature more and another order."""
    names = ["not ours", *reversed(NAMES)]
    theirs = np.column_stack([np.ones(len(rows)), rows[:, ::-1]])
    return (solr_scores if engine == "solr" else elasticsearch_scores)(found.body, names, theirs)


# -- search engines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch", "solr"])
@pytest.mark.parametrize("spec", ["pairrank", "pdgd?rate=0.5", "adaptive", "hybrid"])
def test_engines_order_as_we_do(engine: Engine, spec: str) -> None:
    """Scores to float32's precision, and the same order but where two scores are equal to it."""
    learner = taught(standardized(made(spec)))
    found = export(learner, NAMES, engine, name="shop-v3")
    for seed in range(100, 130):
        rows = some_rows(seed, 30)
        ours, theirs = score_of(learner, Candidates("never came", features=rows)), scored(engine, found, rows)
        size = np.abs(ours).max()
        np.testing.assert_allclose(theirs, ours, atol=3e-6 * size)
        order = np.argsort(-theirs, kind="stable")
        assert (np.diff(ours[order]) <= 6e-6 * size).all()


def test_an_engine_does_not_apply_the_baseline_and_a_note_has_its_weight() -> None:
    learner = taught(standardized(made("pairrank?init=base")))
    found = export(learner, NAMES, "elasticsearch", name="shop-v3")
    assert any(f"{learner.theta_[-1]:.4g}" in note for note in found.notes)
    rows = some_rows(7, 20)
    theirs = scored("elasticsearch", found, rows)
    ours = learner.scaler.scaled(rows) @ learner.theta_[:-1]
    np.testing.assert_allclose(theirs, ours, atol=3e-6 * np.abs(ours).max())


def test_what_cannot_be_said_is_refused_with_the_remedy() -> None:
    scaled_within = taught(made("pairrank"), scale=True)
    with pytest.raises(InvalidParameter, match='"normalization": "stream"'):
        export(scaled_within, NAMES, "solr", name="shop-v3")
    with pytest.raises(InvalidParameter, match="has learned nothing yet"):
        export(made("pairrank"), NAMES, "json", name="shop-v3")
    with pytest.raises(InvalidParameter, match="ranks by ids"):
        export(made("bubblerank"), [], "json", name="shop-v3")
    with pytest.raises(InvalidParameter, match="as ONNX"):
        export(made("olranknet?width=4"), NAMES, "elasticsearch", name="shop-v3")
    with pytest.raises(InvalidParameter, match="3 names for 5 weights"):
        export(scaled_within, NAMES[:3], "json", name="shop-v3")
    with pytest.raises(InvalidParameter, match="occurs twice"):
        export(scaled_within, ["a", "a"], "json", name="shop-v3")
    with pytest.raises(InvalidParameter, match="must be one of elasticsearch, opensearch"):
        export(scaled_within, NAMES, "vespa", name="shop-v3")  # type: ignore[arg-type]


# -- our own JSON, and ONNX ----------------------------------------------------------------------------------------


def json_scores(body: bytes, rows: Array) -> Array:
    """As docs/export.md tells programs to."""
    model = json.loads(body)
    assert (model["format"], model["format_version"]) == ("rankloop/linear", 1)
    total = np.zeros(len(rows))
    for j, feature in enumerate(model["features"]):
        column = rows[:, j]
        if model["normalization"] == "stream":
            if feature["spread"] == 0:
                continue
            column = (column - feature["middle"]) / feature["spread"]
        elif model["normalization"] == "query-minmax":
            span = column.max() - column.min()
            column = (column - column.min()) / span if span else np.zeros(len(rows))
        total += feature["weight"] * column
    if model["base_order"] is not None:
        total += model["base_order"] * -np.log(1.0 + np.arange(len(rows)))
    return total


LINEAR = ["pairrank", "pairrank?init=base", "hybrid", "adaptive", "pdgd?rate=0.5", "greedy", "mgd"]


@pytest.mark.parametrize("how", ["stream", "query-minmax"])
@pytest.mark.parametrize("spec", LINEAR)
def test_weighted_sums_as_json_and_onnx(spec: str, how: str) -> None:
    """To 1e-6, which is what is asked; it is rounding of float64."""
    learner = taught(standardized(made(spec)) if how == "stream" else made(spec), scale=how == "query-minmax")
    plain, graph = (export(learner, NAMES, to, name="shop-v3") for to in ("json", "onnx"))
    for seed, n in ((100, 1), (101, 2), (102, 17), (103, 60)):
        rows = some_rows(seed, n)
        candidates = Candidates("never came", features=rows)
        candidates = candidates if how == "stream" else scaled(candidates)
        if hasattr(learner, "score"):
            ours = score_of(learner, candidates)
        else:
            ours = (
                learner.scaler.scaled(rows) @ learner.theta_
                if how == "stream"
                else candidates.features @ learner.theta_
            )
        np.testing.assert_allclose(json_scores(plain.body, rows), ours, atol=1e-6)
        np.testing.assert_allclose(run_onnx(graph, rows), ours, atol=1e-6)


NETWORKS = [
    "olranknet?width=8",
    "olranknet-paper?width=8",
    "olranknet?width=8&init=base",
    "perturbed-ensemble?width=8&nets=2",
    "neural-pdgd?width=8",
    "neural-pdgd?width=6&net=three-layer",
]


@pytest.mark.parametrize("spec", NETWORKS)
def test_networks_as_onnx(spec: str) -> None:
    """To 1e-6 of the scores' size, over random inputs and what was learned."""
    if "three-layer" in spec:
        pytest.importorskip("torch")
    learner = taught(standardized(made(spec)), 30)
    found = export(learner, NAMES, "onnx", name="shop-v3")
    for seed, n in ((100, 1), (101, 2), (102, 25)):
        rows = some_rows(seed, n)
        ours = score_of(learner, Candidates("never came", features=rows))
        np.testing.assert_allclose(run_onnx(found, rows), ours, atol=1e-6 * max(1.0, np.abs(ours).max()))


def test_networks_of_your_own_and_a_missing_library_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    own = registry.make("neural-pdgd", net=lambda d: torch.nn.Sequential(torch.nn.Linear(d, 1), torch.nn.Flatten(0)))
    with pytest.raises(InvalidParameter, match=r"torch\.onnx\.export"):
        export(taught(own, 2, scale=True), NAMES, "onnx", name="shop-v3")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"rankloop\[export\]"):
        export(taught(made("pairrank"), scale=True), NAMES, "onnx", name="shop-v3")


# -- the page ------------------------------------------------------------------------------------------------------
