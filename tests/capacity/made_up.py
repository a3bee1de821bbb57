"""Constants with round numbers, so that what a plan should say can be worked out by hand."""

from __future__ import annotations

from rankloop.service.capacity.constants import Constants, LearnerConstants, StoreConstants
from rankloop.service.capacity.curves import Curve


def flat(value: float) -> Curve:
    """A cost that is the same for all sizes."""
    return Curve({"1": value})


def store(**changed: object) -> StoreConstants:
    """A list takes a process 1 ms and a core .5 ms; an event 1 ms and .5 ms; the database .2 ms each."""
    values: dict[str, object] = {
        "hold_list": flat(0.0009),
        "hold_event": flat(0.001),
        "ranking_list": flat(0.0004),
        "ranking_event": flat(0.0005),
        "database_list": flat(0.0002),
        "database_event": flat(0.0002),
        "fold_event": flat(0.0003),
        "sender_list": flat(0.0001),
        "sender_event": flat(0.0001),
        "wal_list": Curve({"1": 1000.0, "k d": 8.0}),
        "wal_event": flat(2000.0),
        "stored_list": Curve({"1": 1000.0, "k d": 8.0}),
        "stored_event": flat(1000.0),
        "rows_list": flat(1.0),
        "rows_event": flat(3.0),
        "request": Curve({"1": 100.0, "n d": 7.0}),
        "answer": Curve({"1": 300.0, "k": 50.0}),
        "event": flat(500.0),
        "commits": 0.25,
        "usable": 0.8,
        "list_trip": 0.001,
        "event_trip": 0.002,
        "spread": (0.5, 1.0, 1.5),
        "memory_ranking": 100e6,
        "memory_learning": 60e6,
    }
    return StoreConstants(**{**values, **changed})  # type: ignore[arg-type]


def constants(**changed: object) -> Constants:
    """Of a machine that is not there; its one learner ranks in .1 ms and learns in .2 ms."""
    learner = LearnerConstants(flat(0.0001), flat(0.0002), Curve({"d d": 8.0}))
    stores = {"postgresql": store(**changed), "sqlite": store(**changed)}
    return Constants("nobody's machine, 2 cores", 2, "2026-01-01T00:00:00+00:00", "0", stores, {"pairrank": learner})
