"""The lab and the service are the same loop: same seed, data and feedback, same bits at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from rankloop.clicks.users import open_user
from rankloop.core import codec, registry
from rankloop.core.learner import Learner
from rankloop.core.rng import Rng
from rankloop.core.scaling import standardized
from rankloop.core.types import Array, Feedback, Impression
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.simulate import Step, simulate
from rankloop.lab.worlds.world import Stationary
from rankloop.service.serving.live_ranker import BLOCK
from tests.service.app_fixtures import Body, Service, model_of, names, shown, slow_except, until

ROUNDS, SEED = 60, 11
DATA = "synthetic:mq2007?queries=20&vali=2&test=2"
LEARNERS = ["hybrid", "pairrank", "pdgd", "greedy"]  # all start as the caller's order: the service lets them


class Run(NamedTuple):
    """A run of the lab, step by step, and what the learner knew in the end."""

    dataset: Dataset
    steps: list[Step]
    learner: Learner


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_split(DATA).train


@pytest.fixture(scope="module")
def raw() -> Dataset:
    """The same documents before they were normalized."""
    return open_split(f"{DATA}&normalize=none").train


def lab(name: str, dataset: Dataset, rounds: int = ROUNDS, seed: int = SEED) -> Run:
    learner, user = registry.make(name, init="base"), open_user("navigational", dataset.highest_grade)
    if dataset.normalization == "stream":
        learner = standardized(learner)
    return Run(dataset, list(simulate(learner, Stationary(dataset), user, rounds, seed)), learner)


def body_of(step: Step, rows: Array) -> Body:
    """The request of a round: its documents with their features as JSON writes them."""
    ids = step.round.candidates.items.tolist()
    listed = [{"id": i, "features": row} for i, row in zip(ids, rows.tolist(), strict=True)]
    return {"query": step.round.candidates.query, "candidates": listed}


def rows_of(step: Step, dataset: Dataset) -> Array:
    """The documents of a round as another version of the data set has them."""
    q = dataset.queries.tolist().index(step.round.candidates.query)
    rows: Array = dataset.features[dataset.offsets[q] : dataset.offsets[q + 1]]
    return rows


def serve(service: Service, name: str, steps: list[Step], dataset: Dataset) -> Iterator[Body]:
    """Send the rounds of a lab run to the service, with the same users' clicks, one after the other."""
    for step in steps:
        answer = service.rank(name, **body_of(step, rows_of(step, dataset)))
        assert not answer["fallback"]
        yield answer
        live = service.engine.rankers[name]
        before = model_of(live).learned
        items = shown(answer)
        clicked = [items[slot] for slot in np.flatnonzero(step.feedback.values)]
        assert service.report(answer, clicked) == "accepted"
        until(lambda live=live, want=before + 1: model_of(live).learned == want, "the round to be learned")  # type: ignore[misc]


def spec_of(name: str, dataset: Dataset, **more: Any) -> Body:
    spec = {"learner": name, "features": names(dataset.width), "seed": SEED, "exposure": "full"}
    return {**spec, "normalization": "none", **more}


def same_state(one: Learner, other: Learner) -> bool:
    """Bit for bit."""
    return codec.dumps(one.state()) == codec.dumps(other.state())


@pytest.mark.parametrize("name", slow_except(LEARNERS, "hybrid", "pdgd"))
def test_the_service_is_the_lab_over_http(name: str, data: Dataset, tmp_path: Path) -> None:
    run = lab(name, data)
    with Service(tmp_path / "lab.db") as service:
        service.ready().put("lab", **spec_of(name, data))
        for step, answer in zip(run.steps, serve(service, "lab", run.steps, data), strict=True):
            assert shown(answer) == step.impression.items.tolist()
            assert answer["version"] == f"live@{step.t}"
        served = model_of(service.engine.rankers["lab"]).learner
        assert same_state(served, run.learner)
        assert np.any(served.state()["theta_"] != 0)


@pytest.mark.parametrize("name", slow_except(LEARNERS, "hybrid"))
def test_the_service_normalizes_as_the_lab_does(name: str, data: Dataset, raw: Dataset, tmp_path: Path) -> None:
    run = lab(name, data)
    assert not np.array_equal(data.features, raw.features)
    with Service(tmp_path / "raw.db") as service:
        service.ready().put("lab", **spec_of(name, data, normalization="query-minmax"))
        for step, answer in zip(run.steps, serve(service, "lab", run.steps, raw), strict=True):
            assert shown(answer) == step.impression.items.tolist()
        assert same_state(model_of(service.engine.rankers["lab"]).learner, run.learner)


@pytest.mark.parametrize("name", slow_except(LEARNERS, "hybrid"))
def test_the_service_learns_sizes_as_the_lab_does(name: str, tmp_path: Path) -> None:
    sizes = 10.0 ** np.random.default_rng(1).uniform(-3, 4, 46)
    raw = open_split(f"{DATA}&normalize=stream").train
    raw = replace(raw, features=raw.features * sizes, _candidates={})
    run = lab(name, raw)
    with Service(tmp_path / "stream.db") as service:
        service.ready().put("lab", **spec_of(name, raw, normalization="stream"))
        for step, answer in zip(run.steps, serve(service, "lab", run.steps, raw), strict=True):
            assert shown(answer) == step.impression.items.tolist()
        assert same_state(model_of(service.engine.rankers["lab"]).learner, run.learner)


def stored(service: Service, ranker: str) -> list[tuple[int, Impression, Feedback]]:
    """(number, impression, feedback) of every outcome, in order, as the store has them."""
    sql = (
        "SELECT i.number, i.body, o.feedback FROM outcomes o JOIN impressions i ON i.id = o.impression_id "
        "WHERE o.ranker = ? ORDER BY o.seq"
    )
    rows = service.engine.database.read(lambda connection: connection.rows(sql, ranker))
    service.engine.database.close_thread()
    return [
        (int(number), codec.load_impression(bytes(body)), Feedback.clicks(msgspec.json.decode(values)))
        for number, body, values in rows
    ]


@pytest.mark.parametrize("name", slow_except(LEARNERS, "hybrid"))
def test_a_restart_in_the_middle_leaves_no_trace(name: str, data: Dataset, tmp_path: Path) -> None:
    """Impression numbers jump to the next block, so other lists are shown; what is learned is the fold over them."""
    run, store = lab(name, data), tmp_path / "restart.db"
    half = ROUNDS // 2
    with Service(store) as service:
        service.ready().put("lab", **spec_of(name, data))
        for step, answer in zip(run.steps[:half], serve(service, "lab", run.steps[:half], data), strict=True):
            assert shown(answer) == step.impression.items.tolist()
    with Service(store) as service:
        service.ready()
        assert same_state(model_of(service.engine.rankers["lab"]).learner, lab(name, data, rounds=half).learner)
        served = list(serve(service, "lab", run.steps[half:], data))
        assert served[0]["version"] == f"live@{half}"
        outcomes = stored(service, "lab")
        learner = model_of(service.engine.rankers["lab"]).learner
    numbers = [number for number, _, _ in outcomes]
    assert numbers == [*range(half), *range(BLOCK, BLOCK + ROUNDS - half)]

    fold, streams = registry.make(name, init="base"), Rng(SEED)
    for seq, (number, impression, feedback) in enumerate(outcomes):
        step = run.steps[seq]
        own = fold.rank(step.round.candidates, 10, streams.for_event("rank", number))
        assert own.items.tolist() == impression.items.tolist()
        fold.learn(impression, feedback, streams.for_event("learn", seq))
    assert same_state(learner, fold)


@pytest.mark.parametrize("name", slow_except(LEARNERS, "hybrid"))
def test_two_services_that_are_told_the_same_know_the_same(name: str, data: Dataset, tmp_path: Path) -> None:
    run = lab(name, data, rounds=30)
    ends = []
    for copy in ("one", "other"):
        with Service(tmp_path / f"{copy}.db") as service:
            service.ready().put("lab", **spec_of(name, data, exposure="bounded", displacement=4))
            answers = [shown(answer) for answer in serve(service, "lab", run.steps, data)]
            assert service.act("lab", "versions")["learned_impressions"] == 30
            state = service.state("lab")
        with Service(tmp_path / f"{copy}.db") as service:
            assert service.snapshot("lab") == state
        ends.append((answers, state))
    assert ends[0] == ends[1]


def test_feedback_that_comes_all_at_once_is_learned_in_the_order_it_came(data: Dataset, tmp_path: Path) -> None:
    """Lists ranked before anything was learned, reported in another order: the fold is over the reports."""
    run = lab("pairrank", data, rounds=20)
    order = np.random.default_rng(1).permutation(20)
    with Service(tmp_path / "batch.db") as service:
        service.ready().put("lab", **spec_of("pairrank", data))
        answers = [service.rank("lab", **body_of(step, rows_of(step, data))) for step in run.steps]
        events = []
        for t in order:
            top = shown(answers[t])[0]
            events.append({"event_id": f"e{t}", "impression_id": answers[t]["impression_id"], "clicks": [top]})
        assert {receipt["status"] for receipt in service.feedback(*({**e, "final": True} for e in events))} == {
            "accepted"
        }
        assert service.settle("lab") == 20
        learner = model_of(service.engine.rankers["lab"]).learner
    cold, fold, streams = (
        registry.make("pairrank", init="base"),
        registry.make("pairrank", init="base"),
        Rng(SEED),
    )
    for seq, t in enumerate(order.tolist()):
        impression = cold.rank(run.steps[t].round.candidates, 10, streams.for_event("rank", t))
        assert impression.items.tolist() == shown(answers[t])
        clicks = Feedback.clicks(np.arange(impression.k) == 0)
        fold.learn(impression, clicks, streams.for_event("learn", seq))
    assert same_state(learner, fold)
