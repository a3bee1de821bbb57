"""What is measured belongs to whom it is said to, and curves through runs are those the runs were made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.service.capacity.curves import Curve, Size
from rankloop.service.capacity.measure import processes
from rankloop.service.capacity.measure.campaign import CLICKED, SIZES, Effort, constants_of, steps
from rankloop.service.capacity.measure.learners import SIZES as ALONE
from rankloop.service.capacity.measure.runs import Run, serving
from tests.capacity.made_up import constants, store

pytestmark = pytest.mark.skipif(not processes.supported(), reason="processor times are read from /proc")


@pytest.mark.slow
def test_a_service_under_load(tmp_path: Path) -> None:
    """Every list is in the store, takes time of the process that ranks, and is learned from where it was clicked."""
    with serving(str(tmp_path / "plan.db"), 1) as bench:
        run = bench.run(10, 8, learner="greedy", k=5, connections=4, feedback=0.5, seconds=1.0)
    assert run.lists > 20
    assert run.events == pytest.approx(run.lists / 2, abs=5)
    assert run.ranking > 0
    assert run.learning > 0
    assert run.database == 0.0  # a file has no process of its own
    assert run.stored > 5 * 8 * 8  # the rows shown are stored, eight bytes a number
    assert run.request > 10 * 8 * 5
    assert run.p50 <= run.p99


def test_curves_are_those_that_runs_were_made_from() -> None:
    """Runs of a service whose costs are known give those costs back, for sizes that were not among them."""
    truth = store(
        hold_list=Curve({"1": 5e-4, "n": 1e-6, "n d": 3e-8}),
        ranking_list=Curve({"1": 4e-4, "n d": 3e-8}),
        database_list=Curve({"1": 8e-5, "k d": 2e-7}),
    )
    carrier = constants().learner("pairrank")
    spare, busy = ([_run(size, workers, share, truth) for size, share in _asked()] for workers in (1, 3))
    found = constants_of([_run(Size(20, 20), 1, 1.0, truth)], spare, busy, carrier, cores=2)
    unseen = Size(100, 136)
    for name in ("hold_list", "hold_event", "ranking_list", "ranking_event", "database_list", "fold_event", "request"):
        assert getattr(found, name).at(unseen) == pytest.approx(getattr(truth, name).at(unseen), rel=1e-3), name
    assert found.stored_event.at(unseen) == pytest.approx(1000, rel=1e-3)
    assert found.spread == (0.5, 1.5)


def _asked() -> list[tuple[Size, float]]:
    return [*((size, 0.0) for size in SIZES), *((size, 1.0) for size in CLICKED)]


def _run(size: Size, workers: int, share: float, truth: object) -> Run:
    learner = constants().learner("pairrank")

    def of(name: str) -> float:
        return float(getattr(truth, f"{name}_list").at(size) + share * getattr(truth, f"{name}_event").at(size))

    return Run(
        candidates=size.n,
        features=size.d,
        k=size.k,
        learner="greedy",
        workers=workers,
        connections=32,
        feedback=share,
        lists=1000,
        events=int(1000 * share),
        rate=workers / (of("hold") + learner.rank.at(size)),
        others=0.0,
        p50=2e-3,
        p99=4e-3,
        quantiles=(1e-3, 3e-3),
        events_p50=4e-3,
        ranking=of("ranking") + learner.rank.at(size),
        learning=share * (store().fold_event.at(size) + learner.learn.at(size)),
        database=of("database"),
        sender=of("sender"),
        commits=0.3,
        wal=of("wal"),
        rows=of("rows"),
        stored=of("stored"),
        request=store().request.at(size),
        received=store().answer.at(size) + share * 200,
        reported=share * 300,
        memory_ranking=1e8,
        memory_learning=6e7,
    )


def test_effort_is_bounded_and_told_ahead() -> None:
    with pytest.raises(InvalidParameter, match="turns is 0"):
        Effort(turns=0)
    with pytest.raises(InvalidParameter, match="seconds 100"):
        Effort(seconds=100)
    assert steps(["a.db"], ["greedy"], Effort(2)) == len(ALONE) + 4 * (len(SIZES) + len(CLICKED)) + 1
