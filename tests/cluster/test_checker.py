"""The checker itself: it finds nothing wrong with a run in which nothing is, and whatever is put wrong by hand."""

from __future__ import annotations

import copy
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rankloop.core import codec
from rankloop.core.rng import Rng
from rankloop.core.types import Feedback
from rankloop.service.ranking.model import make_learner, state_bytes
from rankloop.wire.rankers import Spec
from tests.cluster.checker import Away, Record, check, read_record
from tests.cluster.client import Terms
from tests.cluster.cluster import SPEC
from tests.cluster.hosts import KEY
from tests.cluster.spaces import ROOT
from tests.service.running import Service
from tests.service.truths import sent_id
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow
ENOUGH = 400  # lines of the record: some repeated requests and events are among them


class Run(NamedTuple):
    """A record and a store that fit."""

    record: Record
    store: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A service on a file, and users until they were told some hundred things."""
    folder = tmp_path_factory.mktemp("checked")
    store = folder / "store.db"
    service = Service(folder / "service.log", store=store, snapshot_seconds=0.1, store_timeout_ms=PATIENCE * 1e3)
    try:
        service.start()
        service.put_ranker("shop", **{**SPEC, "window_seconds": 1.0})
        terms = Terms({"h1": f"127.0.0.1:{service.port}"}, ["shop"], KEY, str(folder / "record.jsonl"), pause=0.01)
        command = [sys.executable, "-m", "tests.cluster.client", json.dumps(vars(terms))]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as users:
            try:
                assert users.stdin is not None
                users.stdin.write(b"load\n")
                users.stdin.flush()
                told = Path(terms.record)
                wait_for(lambda: told.exists() and told.read_text().count("\n") > ENOUGH, "the users to be answered")
                said, _ = users.communicate(b"finish\n", PATIENCE)
            finally:
                users.kill()
        assert json.loads(said) == {"left": 0}
        wait_for(lambda: service.status("shop")["open_impressions"] == 0, "the last windows to close")
        assert service.stop() == 0, service.log()
    finally:
        service.kill()
    return Run(read_record(folder / "record.jsonl"), store)


@pytest.fixture
def run(done: Run, tmp_path: Path) -> Run:
    """A copy, to be put wrong."""
    return Run(copy.deepcopy(done.record), Path(shutil.copy(done.store, tmp_path / "store.db")))


def wrong(run: Run, **terms: Any) -> list[str]:
    return check(run.record, str(run.store), ["shop"], **terms).problems


def change(run: Run, *statements: str) -> None:
    with sqlite3.connect(run.store) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, statement
    connection.close()


def test_a_run_in_which_nothing_is_wrong(run: Run) -> None:
    found = check(run.record, str(run.store), ["shop"])
    assert found.problems == []
    assert found.told["accepted"] > 20
    assert found.told["duplicate"] > 0
    assert found.outcomes > 20
    assert len(found.took) == found.told["lists"]


LAST = "(SELECT MAX(seq) FROM outcomes)"
STORED: dict[str, tuple[list[str], str]] = {
    "an event is lost": (
        ["DELETE FROM events WHERE event_id = (SELECT MIN(event_id) FROM events)"],
        "is stored 0 times",
    ),
    "an event is another": (
        ["UPDATE events SET body = '{}' WHERE event_id = (SELECT MIN(event_id) FROM events)"],
        "is stored as {}",
    ),
    "an event nobody sent": (
        ["INSERT INTO events SELECT 'x', impression_id, received, status, body FROM events LIMIT 1"],
        "nobody sent it",
    ),
    "an impression is lost": (
        ["DELETE FROM impressions WHERE seq = 3"],
        "is lost",
    ),
    "an outcome is missing": (["DELETE FROM outcomes WHERE seq = 3"], "have a gap at 3"),
    "an outcome twice in the log": (
        [
            "INSERT INTO outcomes (ranker, seq, impression_id, kind, learn, feedback, created) "
            f"SELECT ranker, {LAST} + 1, impression_id, kind, learn, feedback, created FROM outcomes WHERE seq = 3",
            "UPDATE log_offsets SET next_seq = next_seq + 1",
        ],
        "is learned 2 times",
    ),
    "clicks that nobody reported": (
        ["UPDATE outcomes SET feedback = '[1,1,1,1,1]' WHERE seq = 3"],
        "accepted were",
    ),
    "an outcome that is not learned": (["UPDATE snapshots SET seq = seq - 1"], "of them learned and saved"),
    "lists drawn with one number": (
        ["UPDATE impressions SET number = (SELECT number FROM impressions WHERE seq = 4) WHERE seq = 3"],
        "drawn alike",
    ),
    "another list than was shown": (
        ['UPDATE impressions SET shown = \'["a","b","c","d","e"]\' WHERE seq = 3'],
        "another list than was shown",
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_a_store_that_was_put_wrong(name: str, run: Run) -> None:
    statements, words = STORED[name]
    change(run, *statements)
    assert any(words in problem for problem in wrong(run)), wrong(run)


def test_a_state_that_learned_an_outcome_twice(run: Run) -> None:
    """The log is right; the state is not: its bits are those of a fold that took one outcome again."""
    connection = sqlite3.connect(run.store)
    ((text,),) = connection.execute("SELECT spec FROM rankers").fetchall()
    spec = json.loads(text)
    learner, streams = make_learner(Spec(**spec)), Rng(spec["seed"])
    rows = connection.execute(
        "SELECT o.seq, i.body, o.feedback FROM outcomes o JOIN impressions i ON i.id = o.impression_id ORDER BY o.seq"
    ).fetchall()
    clicked = next(row for row in rows if any(json.loads(row[2])))
    for seq, body, feedback in [*rows, clicked]:
        values = Feedback(learner.feedback, json.loads(feedback))
        learner.learn(codec.load_impression(body), values, streams.for_event("learn", seq))
    twice = state_bytes(Spec(**spec), learner.state())
    with connection:
        connection.execute("UPDATE snapshots SET state = ?", (twice,))
    connection.close()
    assert any("differs from the fold of the log" in problem for problem in wrong(run))
    assert any("`rankloop replay` comes to another state" in problem for problem in wrong(run))


def silent(run: Run) -> None:
    run.record.ranks[3] |= {"status": 0, "error": "timed out"}


def disordered(run: Run) -> None:
    run.record.ranks[3] |= {"fallback": True, "reason": "store", "shown": run.record.ranks[3]["sent"][5::-1]}


def doubled(run: Run) -> None:
    run.record.ranks[3]["shown"] = run.record.ranks[3]["shown"][:1] * 2


def forked(run: Run) -> None:
    first = next(said for said in run.record.ranks if said["request"])
    second = next(said for said in run.record.ranks if said["impression_id"] != first["impression_id"])
    second["request"] = first["request"]


def taken_twice(run: Run) -> None:
    next(answers for answers in run.record.answers.values() if answers[0] == "accepted").append("accepted")


def orphaned(run: Run) -> None:
    run.record.answers[next(iter(run.record.answers))] = ["orphan"]


def other_status(run: Run) -> None:
    next(answers for answers in run.record.answers.values() if answers[0] == "accepted")[0] = "late"


TOLD: list[tuple[Callable[[Run], None], str]] = [
    (silent, "did not answer"),
    (disordered, "is not the caller's order"),
    (doubled, "or one twice"),
    (forked, "was answered with two lists"),
    (taken_twice, "was taken twice"),
    (orphaned, "was told that there is no impression"),
    (other_status, "and is stored as accepted"),
]


@pytest.mark.parametrize(("put_wrong", "words"), TOLD)
def test_a_record_that_was_put_wrong(put_wrong: Callable[[Run], None], words: str, run: Run) -> None:
    put_wrong(run)
    assert any(words in problem for problem in wrong(run)), wrong(run)


def test_what_is_excused_and_what_is_not(run: Run) -> None:
    silent(run)
    at = run.record.ranks[3]["at"]
    assert wrong(run, away=[Away("h1", at - 1.0, at + 1.0)]) == []
    assert wrong(run, away=[Away("h2", at - 1.0, at + 1.0)]) != []
    assert wrong(run, away=[Away("h1", at + 60.0, at + 61.0)]) != []


def test_young_lists_may_go_with_a_database_that_crashes(run: Run) -> None:
    said = next(said for said in run.record.ranks if said["impression_id"])
    lost = said["impression_id"]
    sql = f"SELECT event_id FROM events WHERE impression_id = '{lost}'"
    connection = sqlite3.connect(run.store)
    events = [sent_id(row[0]) for row in connection.execute(sql)]
    connection.close()
    change(run, f"UPDATE impressions SET id = 'another' WHERE id = '{lost}'")
    for event in events:
        run.record.answers[event] = ["orphan"]
    crash = said["until"] + 0.2
    assert not any(f"{lost}, shown" in problem for problem in wrong(run, crashes=[crash]))
    assert any(f"{lost}, shown" in problem for problem in wrong(run, crashes=[crash + 60.0]))
    assert any(f"{lost}, shown" in problem for problem in wrong(run))
