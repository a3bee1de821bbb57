"""Experiments in the store, on SQLite and PostgreSQL: begun once, ended once, counted once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rankloop.service.storage import experiments, rankers, snapshots
from rankloop.service.storage.experiments import Tally
from rankloop.wire.experiments import Evidence, ExperimentRequest
from rankloop.wire.rankers import Guardrail
from tests.service.stores import Store, ev, shop, store

__all__ = ["shop", "store"]  # fixtures

GUARDED: dict[str, Any] = {"exposure": "full", "guardrail": Guardrail(share=0.3, alpha=0.1)}


def begin(store: Store, name: str = "shop", **terms: Any) -> int:
    return store.do(experiments.start, store.row(name), "experiment", ExperimentRequest(**terms), store.now)


def running(store: Store, name: str = "shop") -> list[experiments.Experiment]:
    return store.see(experiments.running, name)


def change(store: Store, name: str = "shop", **spec: Any) -> bool:
    """As a PUT does."""

    def work(connection: Any) -> bool:
        row = rankers.get_ranker(connection, name)
        assert row is not None
        rankers.set_spec(connection, name, msgspec.structs.replace(row.spec, **spec))
        return experiments.reconcile(connection, name, store.now)

    return store.do(work)


def test_an_experiment_comes_back_as_it_began(shop: Store) -> None:
    before = shop.row().revision
    number = begin(shop, against=3, share=0.25, note="a note")
    (found,) = running(shop)
    assert (number, found.id, found.kind, found.state, found.reason) == (1, 1, "experiment", "running", None)
    assert found.terms == ExperimentRequest(against=3, share=0.25, note="a note")
    assert (found.started, found.ended, found.next_seq, found.tally) == (1000.0, None, 0, Tally())
    assert found.subject == experiments.subject(shop.row())
    assert shop.row().revision > before  # other processes look
    shop.ranker("other")
    assert begin(shop, "other") == 1  # numbers are each ranker's own
    assert shop.see(experiments.get_experiment, "shop", 2) is None
    assert shop.see(experiments.get_experiment, "shop", 1) == found


def test_experiment_ends_once(shop: Store) -> None:
    begin(shop)
    shop.now = 1010.0
    assert shop.do(experiments.end, "shop", 1, "enough", shop.now)
    assert not shop.do(experiments.end, "shop", 1, "again", 1020.0)
    found = shop.see(experiments.get_experiment, "shop", 1)
    assert found is not None
    assert (found.state, found.reason, found.ended) == ("stopped", "enough", 1010.0)
    assert running(shop) == []
    assert begin(shop) == 2
    assert [one.id for one in shop.see(experiments.list_experiments, "shop")] == [2, 1]


@pytest.mark.parametrize("exposure", ["bounded", "full"])
def test_guardrail_starts_if_the_spec_asks_for_one(store: Store, exposure: str) -> None:
    store.ranker(exposure=exposure, guardrail=Guardrail(share=0.3, alpha=0.1))
    assert experiments.needs_reconcile(store.row(), running(store))
    assert store.do(experiments.reconcile, "shop", store.now)
    (found,) = running(store)
    assert (found.kind, found.terms) == ("guardrail", ExperimentRequest(share=0.3, alpha=0.1, exposure=exposure))  # type: ignore[arg-type]
    revision = store.row().revision
    assert not store.do(experiments.reconcile, "shop", store.now)  # nothing to do is nothing done
    assert store.row().revision == revision


def test_no_guardrail_starts_without_one_in_the_spec(store: Store) -> None:
    store.ranker("shadow", guardrail=Guardrail())
    store.ranker("unguarded", exposure="full", guardrail=None)
    for name in ("shadow", "unguarded", "nobody"):
        assert not store.do(experiments.reconcile, name, store.now)
        assert running(store, name) == []


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"exposure": "bounded"}, "exposure from full to bounded"),
        ({"exposure": "shadow"}, "exposure from full to shadow"),
        ({"displacement": 5}, "displacement from 3 to 5"),
        ({"guardrail": None}, "guardrail was changed"),
        ({"guardrail": Guardrail(share=0.3, alpha=0.2)}, "guardrail was changed"),
    ],
)
def test_experiment_ends_when_its_configuration_changes(store: Store, spec: dict[str, Any], reason: str) -> None:
    store.ranker(**GUARDED)
    store.do(experiments.reconcile, "shop", store.now)
    begin(store)
    store.now = 1005.0
    assert change(store, **spec)
    first, second = (store.see(experiments.get_experiment, "shop", number) for number in (1, 2))
    assert first is not None
    assert second is not None
    assert (first.state, first.ended) == ("stopped", 1005.0)
    assert reason in (first.reason or "")
    assert (second.state == "running") == ("guardrail" in spec)  # an experiment does not care for the guardrail
    left = [one for one in running(store) if one.kind == "guardrail"]
    row = store.row()
    assert [one.terms for one in left] == [terms for terms in [experiments.guardrail_request(row)] if terms is not None]
    assert not experiments.needs_reconcile(row, running(store))


def test_experiment_continues_after_other_changes(store: Store) -> None:
    store.ranker(**GUARDED)
    store.do(experiments.reconcile, "shop", store.now)
    begin(store)
    assert not change(store, k=3, window_seconds=5.0, silence="ignore", timeout_ms=50.0)
    store.do(rankers.set_learning, "shop", False)
    assert not store.do(experiments.reconcile, "shop", store.now)
    assert [one.id for one in running(store)] == [1, 2]


def test_promotion_rollback_and_reset_end_it(store: Store) -> None:
    store.ranker(**GUARDED)
    store.do(experiments.reconcile, "shop", store.now)
    begin(store)
    store.do(rankers.set_serving, "shop", 4)
    assert store.do(experiments.reconcile, "shop", store.now)
    begin(store)
    store.do(snapshots.replace_state, "shop", b"other", store.now, reset=False)
    assert store.do(experiments.reconcile, "shop", store.now)
    reasons = [one.reason for one in reversed(store.see(experiments.list_experiments, "shop"))]
    assert reasons[0] == reasons[1] == "the ranker has changed: the version served"
    assert [one.kind for one in running(store)] == ["guardrail"]


def test_experiment_reads_its_own_outcomes_in_order(shop: Store) -> None:
    number = begin(shop)
    for name, fields in {
        "a": {"experiment": number, "credit": b"[1.0,0.0,-1.0]"},
        "b": {},
        "c": {"experiment": 7, "credit": b"[1.0,0.0,-1.0]"},
        "d": {"experiment": number, "credit": b"[-1.0,0.0,1.0]"},
        "open": {"experiment": number, "credit": b"[0.0,0.0,0.0]"},
    }.items():
        shop.show(name, **fields)
    shop.now = 1003.0
    for name, clicks in {"d": ["a"], "c": ["a"], "b": ["c"], "a": []}.items():
        shop.send(ev(f"e{name}", name, clicks, final=True))
    found = shop.see(experiments.interleaved_outcomes, "shop", number, 0, 4, 100)
    assert [(one.seq, one.credit, one.values, one.when) for one in found] == [
        (0, [-1.0, 0.0, 1.0], [1.0, 0.0, 0.0], 1003.0),
        (3, [1.0, 0.0, -1.0], [0.0, 0.0, 0.0], 1003.0),
    ]
    assert [one.seq for one in shop.see(experiments.interleaved_outcomes, "shop", number, 0, 3, 100)] == [0]
    assert [one.seq for one in shop.see(experiments.interleaved_outcomes, "shop", number, 1, 4, 100)] == [3]
    assert [one.seq for one in shop.see(experiments.interleaved_outcomes, "shop", number, 0, 4, 1)] == [0]


def test_tally_replaces_only_the_one_it_continues(shop: Store) -> None:
    begin(shop)
    (before,) = running(shop)
    assert shop.do(experiments.save_tally, before, Tally(lists=5), 9)
    assert not shop.do(experiments.save_tally, before, Tally(lists=6), 10)  # another process was first
    (after,) = running(shop)
    assert (after.tally.lists, after.next_seq) == (5, 9)
    shop.do(experiments.end, "shop", 1, "enough", shop.now)
    assert not shop.do(experiments.save_tally, after, Tally(lists=7), 11)  # it has ended
    found = shop.see(experiments.get_experiment, "shop", 1)
    assert found is not None
    assert found.tally.lists == 5


EVIDENCE = Evidence(1002.0, 120, -0.2, (-0.3, -0.1))
WORSE = Tally(lists=120, verdict="worse", evidence=EVIDENCE)


def test_demotion_happens_once(store: Store) -> None:
    store.ranker(**GUARDED)
    store.do(experiments.reconcile, "shop", store.now)
    begin(store)
    guard = running(store)[0]
    revision = store.row().revision
    store.now = 1002.0
    assert store.do(experiments.demote, guard, WORSE, 300, store.now)
    row = store.row()
    assert (row.spec.exposure, row.spec.guardrail) == ("shadow", Guardrail(share=0.3, alpha=0.1))
    assert row.revision > revision
    assert running(store) == []  # the experiment, too: users are to see the base order
    found = store.see(experiments.get_experiment, "shop", guard.id)
    assert found is not None
    assert (found.state, found.ended, found.next_seq, found.tally) == ("demoted", 1002.0, 300, WORSE)
    assert store.see(experiments.demotions) == {"shop": EVIDENCE}
    assert not store.do(experiments.demote, guard, WORSE, 300, store.now)  # by a process that was slower
    change(store, exposure="full")
    assert not store.do(experiments.demote, guard, WORSE, 300, store.now)  # not even after it was put up again
    assert store.row().spec.exposure == "full"
    assert [one.id for one in running(store)] == [3]
    assert store.see(experiments.demotions) == {}


def test_a_guardrail_that_has_ended_demotes_nobody(store: Store) -> None:
    store.ranker(**GUARDED)
    store.do(experiments.reconcile, "shop", store.now)
    (guard,) = running(store)
    change(store, guardrail=None)
    assert not store.do(experiments.demote, guard, WORSE, 300, store.now)
    assert store.row().spec.exposure == "full"


def test_deleting_a_ranker_deletes_its_experiments(store: Store) -> None:
    store.ranker(**GUARDED)
    store.do(experiments.reconcile, "shop", store.now)
    assert store.delete("shop")
    assert store.count("experiments") == 0


def test_version_in_an_experiment_is_kept(shop: Store) -> None:
    for _ in range(4):
        shop.do(snapshots.keep_version, "shop", "by the clock", shop.now, automatic=True)
    begin(shop, against=2)
    shop.do(snapshots.delete_old_versions, "shop", 1)
    assert [one.version for one in shop.see(snapshots.versions, "shop")] == [4, 2]
    shop.do(experiments.end, "shop", 1, "enough", shop.now)
    shop.do(snapshots.delete_old_versions, "shop", 1)
    assert [one.version for one in shop.see(snapshots.versions, "shop")] == [4]
