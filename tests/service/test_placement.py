"""Pins, exclusions and quotas hold in every list, whoever orders it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core import codec
from rankloop.core.types import Array, Feedback
from rankloop.service.ranking.exposure import Interleaving
from rankloop.service.ranking.model import PublishedModel, Ranked, make_learner
from rankloop.service.ranking.placement import SLOTS, PlacementConstraints, feedback_without_pins
from rankloop.service.serving.schema import Schema
from rankloop.wire.basics import Quota
from rankloop.wire.calls import RankColumns
from rankloop.wire.rankers import Spec
from tests.service.app_fixtures import Service, fine, items, names, refused, service, shown, until

__all__ = ["service"]  # a fixture

WIDTH = 3
Body = dict[str, Any]


@pytest.fixture(scope="module")
def models() -> dict[str, PublishedModel]:
    """Learners that know something already."""
    found = {}
    for name in ("pdgd", "pairrank", "bubblerank", "dbgd"):
        spec = Spec(learner=name, features=names(WIDTH), exposure="full", normalization="none")
        model = PublishedModel(make_learner(spec), spec, 0, 0)
        for t in range(10):
            call = Schema(spec).read(columns(np.eye(6, WIDTH), ids=list("abcdef"), query="q"))
            ranked = model.rank(Schema(spec).candidates(call), 4, t, spec, None)
            model.learner.learn(
                codec.load_impression(ranked.body), Feedback.clicks([0, 1, 0, 0]), np.random.default_rng(t)
            )
        found[name] = model
    return found


def columns(rows: Array, **fields: Any) -> RankColumns:
    return RankColumns(features=rows.tolist(), **fields)


@st.composite
def requests(draw: st.DrawFn) -> RankColumns:
    n = draw(st.integers(1, 12))
    ids = [f"i{i}" for i in range(n)]
    k = draw(st.integers(1, 14))
    some = draw(st.permutations(ids))
    excluded = some[: draw(st.integers(0, n - 1))]
    pinned = some[len(excluded) :][: draw(st.integers(0, min(4, k)))]
    at = draw(st.permutations(range(1, k + 1)))
    quotas = st.builds(
        Quota, field=st.sampled_from(["brand", "color"]), most=st.integers(1, 3), within=st.integers(1, 12) | st.none()
    )
    values = st.lists(st.sampled_from(["x", "y", "z", 1, None]), min_size=n, max_size=n)
    rows = np.random.default_rng(draw(st.integers(0, 99))).random((n, WIDTH))
    return columns(
        rows,
        ids=ids,
        query="q",
        k=k,
        excluded=[*excluded, "nobody"],
        pinned=dict(zip(pinned, at, strict=False)),
        quotas=draw(st.lists(quotas, max_size=2)),
        groups={"brand": draw(values), "color": draw(values)},
    )


def check(request: RankColumns, found: list[Any], relaxed: tuple[str, ...]) -> None:
    """The rules, in plain words."""
    left = [item for item in request.ids if item not in request.excluded]
    assert request.k is not None
    assert len(found) == len(set(found)) == min(request.k, len(left))
    assert set(found) <= set(left)
    for item, position in request.pinned.items():
        assert item in found
        if request.k <= len(left):  # else the list is shorter than it was to be, and the pin may have moved up
            assert found[position - 1] == item
    for quota in request.quotas:
        group = dict(zip(request.ids, request.groups[quota.field], strict=True))
        counted = found[: quota.within or len(found)]
        times = Counter(group[item] for item in counted if group[item] is not None)
        assert quota.field in relaxed or max(times.values(), default=0) <= quota.most
    if len(request.quotas) == 1 and not request.pinned:
        (quota,) = request.quotas
        group = dict(zip(request.ids, request.groups[quota.field], strict=True))
        sizes = Counter(group[item] for item in left)
        room = sizes.pop(None, 0) + sum(min(size, quota.most) for size in sizes.values())
        assert bool(relaxed) == (room < min(quota.within or len(found), len(found))), "relaxed only where it must be"


def lists(
    model: PublishedModel, request: RankColumns, s: int, seed: int
) -> list[tuple[str, PlacementConstraints | None, Ranked]]:
    """The request's lists in every exposure, mixed ones, and the caller's own order."""
    found: list[tuple[str, PlacementConstraints | None, Ranked]] = []
    for exposure in ("shadow", "bounded", "full"):
        spec = Spec(**{**_fields(model.spec), "exposure": exposure, "displacement": s})
        schema = Schema(spec)
        call, frame = schema.constrain(schema.read(request), spec)
        candidates, k = schema.candidates(call), min(call.k or spec.k, len(call.ids))
        if frame is not None:
            choice = frame.baseline(candidates, k)
            found.append(
                ("base", frame, Ranked(choice, codec.dump_impression(choice.impression), None, None, "live@0"))
            )
            if frame.fixed:
                continue
        found.append((exposure, frame, model.rank(candidates, k, seed, spec, None, None, frame)))
        if exposure != "shadow":
            for odds in (False, True):
                coins = np.random.default_rng(seed).random((2, k) if odds else k)
                mix = Interleaving(1, spec.exposure, np.arange(k), coins, odds)
                found.append(("mixed", frame, model.rank(candidates, k, seed, spec, None, mix, frame)))
    return found


def _fields(spec: Spec) -> Body:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


@pytest.mark.parametrize("name", ["pdgd", "pairrank", "bubblerank", "dbgd"])
@given(request=requests(), s=st.integers(0, 5), seed=st.integers(0, 1000))
def test_placement_rules_hold_in_every_ranking(
    models: dict[str, PublishedModel], name: str, request: RankColumns, s: int, seed: int
) -> None:
    for how, frame, ranked in lists(models[name], request, s, seed):
        choice = ranked.choice
        free = choice.impression.items.tolist()
        whole = free if frame is None else frame.merged(free)
        check(request, whole, choice.relaxed)
        stored = codec.load_impression(ranked.body)
        assert stored.items.tolist() == free
        slots = stored.memo.get(SLOTS)
        assert (slots is not None) == (frame is not None and bool(frame.pins))
        if slots is not None:
            assert [whole[slot] for slot in slots] == free
        if choice.credit is not None:
            assert choice.credit.shape == (len(whole),)
            assert not any(side for side, item in zip(choice.credit, whole, strict=True) if item in request.pinned)
        if request.quotas:
            assert "log_propensity" not in stored.memo
        elif how == "full" and name in ("pdgd", "pairrank"):
            assert "log_propensity" in stored.memo


def test_pins_do_not_change_the_propensity(models: dict[str, PublishedModel]) -> None:
    """The probability that is stored is that of the others' draw, exactly."""
    model = models["pdgd"]
    request = columns(np.eye(4, WIDTH), ids=list("abcd"), k=3, pinned={"c": 2})
    schema = Schema(model.spec)
    call, frame = schema.constrain(schema.read(request), model.spec)
    candidates = schema.candidates(call)
    assert candidates.items.tolist() == ["a", "b", "d"]
    ranked = model.rank(candidates, 2, 0, model.spec, None, None, frame)
    told = float(ranked.choice.impression.memo["log_propensity"][0])
    assert told == pytest.approx(model.learner.log_propensity(candidates, ranked.choice.impression.order))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "seen", "free", "depth"),
    [
        ([0, 1, 0, 0, 0], None, [0, 0, 0], 1),  # only the pin was clicked: what stands above it was seen
        ([1, 0, 0, 1, 0], None, [1, 0, 0], 2),  # the lowest click is on a pin at 4
        ([0, 1, 1, 0, 0], None, [0, 1, 0], None),  # the lowest click is the learner's: it says as much as ever
        ([1, 0, 0, 0, 0], 4, [1, 0, 0], 2),
        ([1], None, [1], None),
    ],
)
def test_feedback_without_the_pins(values: list[float], seen: int | None, free: list[float], depth: int | None) -> None:
    impression = models_impression(np.array([0, 2, 4]))
    found = feedback_without_pins(impression, Feedback.clicks(np.array(values, np.float64), seen))
    assert (found.values.tolist(), found.seen) == (free, depth)


def models_impression(slots: Array) -> Any:
    learner = make_learner(Spec(learner="base"))
    schema = Schema(Spec(learner="base"))
    made = learner.adopt(schema.candidates(schema.read(RankColumns(ids=list("abc")))), np.arange(3))
    return made._replace(memo={SLOTS: slots})


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"pinned": {"z": 1}}, ["'z'"]),
        ({"pinned": {"i0": 1, "i1": 1}}, ["'i0'", "'i1'"]),
        ({"pinned": {"i0": 9}, "k": 3}, ["'i0'"]),
        ({"pinned": {"i0": 1}, "excluded": ["i0"]}, ["'i0'"]),
        ({"excluded": [f"i{i}" for i in range(5)]}, ["candidates"]),
        ({"quotas": [{"field": "brand", "most": 1}]}, ["'brand'", "groups"]),
        ({"quotas": [{"field": "brand", "most": 1}], "groups": {"brand": ["x"]}}, ["candidates"]),
    ],
)
def test_impossible_rules_are_refused(service: Service, rules: Body, words: list[str]) -> None:
    service.put("strict", learner="pdgd", features=names(WIDTH), exposure="full")
    refused(service.http.post("/v1/rankers/strict/rank", json={"candidates": items(5), **rules}), 422, *words)


def test_contradicting_rules_of_a_spec_are_refused(service: Service) -> None:
    spec = {"learner": "base", "pinned": {"a": 1, "b": 1}}
    refused(service.http.put("/v1/rankers/torn", json=spec), 422, "'a'", "'b'")
    spec = {"learner": "base", "pinned": {"a": 1}, "excluded": ["a"]}
    refused(service.http.put("/v1/rankers/torn", json=spec), 422, "'a'")


def test_rules_of_a_spec_apply_where_possible(service: Service) -> None:
    quotas = [{"field": "f0", "most": 1, "within": 3}]  # a feature: no two of the same value
    service.put("ruled", learner="base", features=["f0"], pinned={"i4": 2, "gone": 1}, excluded=["i1"], quotas=quotas)
    candidates = [{"id": f"i{i}", "features": [float(i // 3)]} for i in range(6)]
    answer = service.rank("ruled", candidates, k=4)
    assert shown(answer) == ["i0", "i4", "i2", "i3"]
    assert answer["relaxed"] == ["f0"]  # two values cannot fill three positions
    assert shown(service.rank("ruled", candidates, k=4, pinned={"i5": 2}, excluded=["i4"]))[1] == "i5"


def test_rules_hold_in_every_kind_of_fallback(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner's list, the caller's order when the learner fails or the store is down, and pins that fill a list."""
    service.put("roads", learner="pdgd", features=names(WIDTH), exposure="full")
    rules: Body = {"pinned": {"i5": 1}, "excluded": ["i0"], "k": 3}
    groups: Body = {"quotas": [{"field": "kind", "most": 1}], "groups": {"kind": ["a", "a", "b", "b", "c", "c"]}}

    def ranked(**more: Any) -> Any:
        answer = service.rank("roads", items(6), **{**rules, **groups, **more})
        found = shown(answer)
        assert found[0] == "i5"
        assert "i0" not in found
        assert len({groups["groups"]["kind"][int(item[1:])] for item in found}) == 3
        assert answer["items"][0]["score"] is None
        return answer

    answer = ranked(explain=True)
    assert not answer["fallback"]
    full = service.rank("roads", items(3), k=2, pinned={"i2": 1, "i0": 2})
    assert (shown(full), full["fallback"], full["reason"]) == (["i2", "i0"], True, "pinned")

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    with monkeypatch.context() as patched:
        patched.setattr(PublishedModel, "rank", fails)
        assert ranked()["reason"] == "error"
    with monkeypatch.context() as patched:
        patched.setattr(service.engine.writer, "impression", _never)
        assert ranked()["reason"] == "store"


class _Lost:
    abandoned = False

    async def done(self, _: float) -> Any:
        raise TimeoutError


def _never(*_: Any) -> Any:
    return _Lost()


def test_feedback_on_a_ranking_with_pins(service: Service) -> None:
    """Pins are shown, clicked and told of; they teach nothing."""
    # Not "stream": the scale of the features is learned from every list.
    service.put("pins", learner="pdgd", features=names(WIDTH), exposure="full", normalization="none")
    fresh = service.state("pins")
    answer = service.rank("pins", items(6), k=4, pinned={"i5": 2})
    assert service.report(answer, ["i5"]) == "accepted"
    assert service.settle("pins") == 1
    assert service.state("pins") == fresh
    (told,) = fine(service.http.get("/v1/rankers/pins/impressions"))
    assert [item["id"] for item in told["items"]] == shown(answer)
    assert [item["value"] for item in told["items"]] == [0.0, 1.0, 0.0, 0.0]
    answer = service.rank("pins", items(6), k=4, pinned={"i5": 2})
    assert service.report(answer, [shown(answer)[2]]) == "accepted"
    service.settle("pins")
    assert service.state("pins") != fresh


def test_rules_are_part_of_the_request_digest(service: Service) -> None:
    service.put("again", learner="base")
    request: Body = {"candidates": [{"id": "a"}, {"id": "b"}], "request_id": "r1", "pinned": {"b": 1}}
    first = fine(service.http.post("/v1/rankers/again/rank", json=request))
    assert fine(service.http.post("/v1/rankers/again/rank", json=request)) == first
    request["pinned"] = {"a": 1}
    assert service.http.post("/v1/rankers/again/rank", json=request).status_code == 409


def test_interleaved_rankings_keep_the_rules(service: Service) -> None:
    service.put("tried", learner="pdgd", features=names(WIDTH), exposure="full")
    fine(service.http.post("/v1/rankers/tried/experiments", json={"against": "base", "share": 1.0}))
    until(lambda: service.engine.rankers.experiments.get("tried") is not None, "the experiment")
    for t in range(10):
        answer = service.rank("tried", items(8, seed=t), k=5, pinned={"i7": 3}, excluded=["i0"])
        assert answer["experiment"] is not None
        assert shown(answer)[2] == "i7"
        assert "i0" not in shown(answer)
        service.report(answer, [shown(answer)[0], "i7"])
    service.settle("tried")
    found: Callable[[], Any] = lambda: fine(service.http.get("/v1/rankers/tried/experiments"))[0]  # noqa: E731
    until(lambda: found()["lists"] == 10, "the lists to be counted")


def test_quota_by_a_catalog_field(service: Service) -> None:
    """Strings and numbers; an item that has no value, or is not there, is of no group."""
    brands = ["acme", "acme", "zeta", None, "acme"]
    uploaded = [{"id": f"i{i}", "price": float(i // 2), **({"brand": b} if b else {})} for i, b in enumerate(brands)]
    fine(service.http.put("/v1/catalogs/brands/items", json=uploaded))
    price = {"name": "cheap", "kind": "field", "of": "item.price", "default": 0}
    quotas = [{"field": "brand", "most": 1, "within": 3}]
    service.put("branded", learner="greedy", features=[price], catalog="brands", quotas=quotas)
    until(lambda: fine(service.http.get("/v1/catalogs/brands"))["items"]["behind"] == 0, "it to be held")
    ids = ["i0", "i1", "i4", "i2", "i3", "new"]
    request: Body = {"ids": ids, "k": 4}
    assert shown(fine(service.http.post("/v1/rankers/branded/rank", json=request))) == ["i0", "i2", "i3", "i1"]
    request["quotas"] = [{"field": "price", "most": 1}]
    assert shown(fine(service.http.post("/v1/rankers/branded/rank", json=request))) == ["i0", "i2", "new", "i4"]
    request["quotas"] = [{"field": "color", "most": 1}]
    refused(service.http.post("/v1/rankers/branded/rank", json=request), 422, "'color'")
