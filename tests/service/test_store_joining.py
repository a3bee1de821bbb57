"""The joining rules, against dictionaries."""

from __future__ import annotations

import json
import threading
import time
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.service.storage import Writer, keys, rankers, schema
from rankloop.service.storage.database import open_database
from rankloop.service.storage.events import scoped_id
from rankloop.wire.calls import FeedbackEvent
from tests.service.conftest import Postgres
from tests.service.stores import Store, ev, shop, statuses, store

__all__ = ["shop", "store"]  # fixtures


RANKERS: dict[str, dict[str, Any]] = {
    "clicks": {},
    "quiet": {"silence": "ignore"},
    "graded": {"learner": "x"},
    "summed": {"reward_aggregation": "sum", "click_reward": 0.3},
    "first": {"reward_aggregation": "earliest"},
    "paid": {"reward": {"scale": 2.0}, "click_reward": 0.25, "reward_aggregation": "sum"},
}
ITEMS = ["a", "b", "c"]
Action = tuple[Any, ...]


class Book:
    """The rules of joining in plain Python, one event after the other."""

    def __init__(self) -> None:
        self.lists: dict[str, dict[str, Any]] = {}
        self.events: dict[tuple[str, str], str] = {}  # (ranker, event_id) -> list
        self.outcomes: dict[str, list[tuple[str, str, list[float], int | None]]] = {name: [] for name in RANKERS}

    def show(self, name: str, ranker: str, closes: float) -> None:
        self.lists[name] = {
            "ranker": ranker,
            "closes": closes,
            "open": True,
            "told": False,
            "rewards": None,  # (item, value), as they came
            "paid": {},  # item: sum of rewards in a unit
            "depths": [],  # of views
            "grades": {},
            "marks": {},  # event_id: valid parts of a rejected event
            "final": False,
            "ended": False,
        }

    def take(self, event: FeedbackEvent) -> str:
        one = self.lists.get(event.impression_id)
        if one is None:
            return "orphan"
        status = self._judge(one, event)
        if status == "rejected" and (one["open"] or (one["marks"] and not one["ended"])):
            one["marks"][event.event_id] = self._valid(one["ranker"], event)
        if status == "accepted":
            one["marks"].pop(event.event_id, None)
            self._join(one, event)
            one["final"] |= event.final
            if not one["marks"] and (one["final"] or not one["open"]):
                self._end(event.impression_id, "final" if one["final"] else "window")
        return status

    @staticmethod
    def _valid(ranker: str, event: FeedbackEvent) -> FeedbackEvent:
        """As much of a rejected event as counts."""
        kept = FeedbackEvent(event.event_id, event.impression_id)
        if ranker == "graded":
            kept.grades = {i: grade for i, grade in (event.grades or {}).items() if i in ITEMS and grade >= 0}
            return kept
        most = 1.0 if ranker != "paid" else 99.0
        kept.clicks = [item for item in event.clicks or () if item in ITEMS]
        kept.rewards = {item: worth for item, worth in (event.rewards or {}).items() if worth <= most}
        kept.viewed = event.viewed or None
        kept.seen = event.seen if (event.seen or 0) <= len(ITEMS) else None
        return kept

    def _judge(self, one: dict[str, Any], event: FeedbackEvent) -> str:
        key = one["ranker"], event.event_id
        if key in self.events:
            return "duplicate" if self.events[key] == event.impression_id else "rejected"
        graded = one["ranker"] == "graded"
        behavior = [event.clicks, event.rewards, event.seen, event.viewed]
        clicked, marked = any(part is not None for part in behavior), event.grades is not None
        given, other = (marked, clicked) if graded else (clicked, marked)
        if other or (not given and not event.final):
            return "rejected"
        named = [*(event.clicks or ()), *(event.rewards or ()), *(event.viewed or ()), *(event.grades or ())]
        if any(item not in ITEMS for item in named) or any(grade < 0 for grade in (event.grades or {}).values()):
            return "rejected"
        most = 1 if one["ranker"] != "paid" else 99
        if any(not 0 <= worth <= most for worth in (event.rewards or {}).values()) or (event.seen or 0) > len(ITEMS):
            return "rejected"
        self.events[key] = event.impression_id
        return "accepted" if one["open"] or (event.event_id in one["marks"] and not one["ended"]) else "late"

    @staticmethod
    def _join(one: dict[str, Any], event: FeedbackEvent) -> None:
        if one["ranker"] == "paid":
            if event.clicks is not None or event.rewards is not None:
                one["rewards"] = (one["rewards"] or []) + [(item, 0.25) for item in event.clicks or ()]
            for item, worth in (event.rewards or {}).items():
                one["paid"][item] = one["paid"].get(item, 0.0) + worth
        elif event.clicks is not None or event.rewards is not None:
            worth = RANKERS[one["ranker"]].get("click_reward", 1.0)
            news = [(item, worth) for item in dict.fromkeys(event.clicks or ())] + list((event.rewards or {}).items())
            one["rewards"] = (one["rewards"] or []) + news
        one["depths"] += [] if event.seen is None else [event.seen]
        one["depths"] += (
            [] if event.viewed is None else [max((ITEMS.index(str(item)) + 1 for item in event.viewed), default=0)]
        )
        one["grades"] = {**one["grades"], **(event.grades or {})}
        one["told"] |= any(
            part is not None for part in (event.clicks, event.rewards, event.seen, event.viewed, event.grades)
        )

    def close(self, ranker: str, now: float) -> None:
        ended = [(one["closes"], name) for name, one in self.lists.items() if one["ranker"] == ranker and one["open"]]
        for closes, name in sorted(ended):
            if closes <= now:
                one = self.lists[name]
                known = {**one, "depths": [*one["depths"]], "grades": {**one["grades"]}, "paid": {**one["paid"]}}
                for _, kept in sorted(one["marks"].items()):
                    before = known["grades"]
                    self._join(known, kept)
                    known["grades"] = {**(kept.grades or {}), **before}
                positive = any(worth for _, worth in known["rewards"] or ()) or any(known["paid"].values())
                if one["marks"]:
                    one["open"] = False
                    if positive or (ranker == "graded" and ITEMS[0] in known["grades"]):
                        self.lists[name] = known
                        self._end(name, "window")
                    continue
                unseen = one["depths"] and max(one["depths"]) == 0 and not positive
                if not unseen and (one["told"] or ranker not in ("quiet", "graded")):
                    self._end(name, "window" if one["told"] else "silent")
                one["open"] = False

    def _end(self, name: str, kind: str) -> None:
        one = self.lists[name]
        one["open"], one["ended"] = False, True
        values: list[float] = []
        if one["rewards"] is not None:
            values = [
                self._joined(one["ranker"], [w for named, w in one["rewards"] if named == item]) for item in ITEMS
            ]
        for slot, item in enumerate(ITEMS):
            if paid := one["paid"].get(item):
                values[slot] = 0.25 + 0.75 * min(paid / 2.0, 1.0)
        for item in ITEMS:
            if item not in one["grades"]:
                break
            values.append(one["grades"][item])
        self.outcomes[one["ranker"]].append((name, kind, values, max(one["depths"], default=None)))

    @staticmethod
    def _joined(ranker: str, worths: list[float]) -> float:
        if ranker == "summed":
            return reduce(lambda total, worth: min(total + worth, 1.0), worths, 0.0)
        return (worths[0] if ranker == "first" else max(worths)) if worths else 0.0


reports = st.fixed_dictionaries(
    {"event": st.integers(0, 25), "at": st.integers(0, 12)},
    optional={
        "clicks": st.lists(st.sampled_from([*ITEMS, *ITEMS, "z"]), max_size=3),
        "grades": st.dictionaries(
            st.sampled_from([*ITEMS, *ITEMS, "z"]), st.sampled_from([0.0, 1.0, 4.0, -1.0]), max_size=3
        ),
        "rewards": st.dictionaries(st.sampled_from(ITEMS), st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.5]), max_size=3),
        "seen": st.integers(0, 4),
        "viewed": st.lists(st.sampled_from(ITEMS), max_size=3),
        "final": st.booleans(),
    },
)
# Mostly feedback of the kind the list wants, or few sequences would come to anything.
fitting = st.fixed_dictionaries(
    {"event": st.integers(0, 200), "at": st.integers(0, 12), "fit": st.lists(st.sampled_from(ITEMS), max_size=3)},
    optional={
        "final": st.booleans(),
        "worth": st.dictionaries(st.sampled_from(ITEMS), st.sampled_from([0.0, 0.3, 0.6, 1.0]), max_size=2),
        "seen": st.integers(0, 3),
    },
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("show"), st.sampled_from(sorted(RANKERS)), st.sampled_from([1.0, 5.0])),
        st.tuples(st.just("send"), st.lists(st.one_of(fitting, fitting, reports), min_size=1, max_size=5)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 4.0]), st.sampled_from(sorted(RANKERS))),
    ),
    max_size=40,
)


class Compared:
    """Does the same to a store and to the book; every example gets rankers of its own in the one store."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self._examples = count()

    def run(self, todo: list[Action]) -> None:
        store, book, prefix = self.store, Book(), f"x{next(self._examples)}-"
        for ranker, spec in RANKERS.items():
            store.ranker(prefix + ranker, **spec)
        shown: list[tuple[str, str]] = []
        for action in todo:
            if action[0] == "show":
                name = f"{prefix}{len(shown):03}"
                shown.append((name, action[1]))
                store.show(name, ranker=prefix + action[1], window=action[2])
                book.show(name, action[1], store.now + action[2])
            elif action[0] == "send":
                events = [self._event(prefix, shown, dict(fields)) for fields in action[1]]
                assert statuses(store.send(*events)) == [book.take(event) for event in events]
            else:
                store.now += action[1]
                store.close_windows()
                for ranker in RANKERS:
                    book.close(ranker, store.now)
        for ranker, expected in book.outcomes.items():
            found = store.rows(
                "SELECT seq, impression_id, kind, feedback, viewed FROM outcomes WHERE ranker = ? ORDER BY seq",
                prefix + ranker,
            )
            assert [row[0] for row in found] == list(range(len(expected)))
            assert [(name, kind, json.loads(feedback), viewed) for _, name, kind, feedback, viewed in found] == expected
        kept = store.rows("SELECT event_id, impression_id FROM events WHERE impression_id LIKE ?", f"{prefix}%")
        assert dict(kept) == {scoped_id(prefix + ranker, name): own for (ranker, name), own in book.events.items()}
        opened = store.rows("SELECT id FROM impressions WHERE open = 1 AND id LIKE ?", f"{prefix}%")
        assert {row[0] for row in opened} == {name for name, one in book.lists.items() if one["open"]}

    @staticmethod
    def _event(prefix: str, shown: list[tuple[str, str]], fields: dict[str, Any]) -> FeedbackEvent:
        at = fields.pop("at")
        name, ranker = shown[at] if at < len(shown) else (f"{prefix}nowhere", "clicks")
        event = f"{prefix}e{fields.pop('event')}"
        if "fit" in fields:
            items = fields.pop("fit")
            worth, seen = fields.pop("worth", None), fields.pop("seen", None)
            said = {"clicks": items, "rewards": worth, "seen": seen}
            fields |= {"grades": dict.fromkeys(items, 2.0)} if ranker == "graded" else said
        return FeedbackEvent(event, name, **fields)


def test_joining_follows_the_rules_sqlite(tmp_path: Path) -> None:
    compared = Compared(str(tmp_path / "store.db"))

    @given(actions)
    def follows(todo: list[Action]) -> None:
        compared.run(todo)

    follows()
    compared.store.close()


def test_joining_follows_the_rules_postgresql(postgres: Postgres) -> None:
    compared = Compared(postgres.database())

    @settings(max_examples=settings().max_examples // 2)
    @given(actions)
    def follows(todo: list[Action]) -> None:
        compared.run(todo)

    follows()
    compared.store.close()


@pytest.mark.slow
def test_write_ahead_log_is_truncated_despite_constant_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankloop.service.storage.sqlite.CHECKPOINT_BYTES", 50_000)
    monkeypatch.setattr("rankloop.service.storage.sqlite.TRUNCATE_BYTES", 100_000)
    monkeypatch.setattr("rankloop.service.storage.writer.MAINTAIN_EVERY", 0.02)
    database = open_database(str(tmp_path / "busy.db"))
    schema.migrate(database)
    writer, ended = Writer(database, {}), threading.Event()

    def look() -> None:
        while not ended.is_set():
            database.read(rankers.list_rankers)
        database.close_thread()

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    log_file, sizes, started = tmp_path / "busy.db-wal", [0], time.monotonic()
    try:
        for i in count():
            writer.do(lambda c, i=i: keys.add(c, keys.StoredKey(f"{i:03}" * 10_000, f"key {i}", "rank", 1.0)))  # type: ignore[misc]
            sizes.append(log_file.stat().st_size)
            if sizes[-1] < sizes[-2]:
                break
            assert time.monotonic() - started < 60, "the log was not emptied within a minute"
    finally:
        ended.set()
        for reader in readers:
            reader.join()
        writer.close()
        database.close_thread()


def test_one_event_id_of_two_rankers_in_one_batch(store: Store) -> None:
    for name in ("shop", "films"):
        store.ranker(name)
    own, theirs = store.show(), store.show(ranker="films")
    assert statuses(store.send(ev("e", own, ["a"]), ev("e", theirs, ["a"]), ev("e", own, ["a"]))) == [
        "accepted",
        "accepted",
        "duplicate",
    ]
