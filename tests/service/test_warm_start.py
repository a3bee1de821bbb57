"""Warm start of a ranker: logged lists join its log once, and replay meets the same bits, on both stores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankloop.cli import main
from rankloop.core import codec
from rankloop.core.errors import DataError
from rankloop.logs import LogReader, parse_line
from rankloop.service.control import warm_start
from rankloop.service.control.actions import Action
from rankloop.service.errors import Conflict
from rankloop.service.offline.log_source import open_log_source
from rankloop.service.offline.policy_comparison import plan_comparison, run_comparison
from rankloop.service.offline.replay import open_store, rebuild
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.storage import audit
from rankloop.service.storage.outcomes import Backfilled
from tests.logged.logs import lists, write_json_lines
from tests.service.app_fixtures import Body, Service, fine, names, refused, teach
from tests.waiting import wait_for

LEARNER: dict[str, Any] = {"learner": "pairrank", "parameters": {"pairs": "matched"}}  # draws when it learns
COMMAND = "import sys; from rankloop.cli import main; main(sys.argv[1:])"


def post(service: Service, name: str, found: list[Body] | bytes, strict: bool = False) -> Any:
    body = found if isinstance(found, bytes) else "\n".join(map(json.dumps, found)).encode()
    return service.http.post(f"/v1/rankers/{name}/warm" + "?strict=true" * strict, content=body)


def made(store: str, name: str = "shop", **spec: Any) -> None:
    """A store with a ranker, and no service."""
    path: Any = store
    with Service(path) as service:
        service.put(name, features=names(3), **LEARNER, **spec)


def command(*words: str) -> Any:
    """What `rankloop warm-start` says as JSON."""
    with pytest.raises(SystemExit) as ended:
        main(["warm-start", *words, "--json"])
    assert ended.value.code == 0


def test_what_was_warmed_is_replayed_bit_for_bit(store_url: str) -> None:
    path: Any = store_url
    with Service(path) as service:
        service.ready().put("shop", features=names(3), exposure="full", **LEARNER, seed=5)
        told = fine(post(service, "shop", lists(300)))
        assert told == {"lists": 300, "clicks": 300, "known": 0, "skipped": 0, "problems": []}
        assert service.settle("shop") == 300
        first = fine(service.http.post("/v1/rankers/shop/versions"))["version"]
        warmed = service.state("shop")
        teach(service, "shop", 5)
        fine(post(service, "shop", lists(40, seed=1)))
        service.settle("shop")
        service.act("shop", "rollback", version=first)
        assert service.state("shop") == warmed
        fine(post(service, "shop", lists(20, seed=2)))
        teach(service, "shop", 3, seed=70)
        last = service.state("shop")
    with open_store(store_url) as database:
        found = rebuild(database, "shop", version=first)
        assert (found.learned, found.equal, found.start) == (300, True, "fresh")
        found = rebuild(database, "shop")
        assert (found.learned, found.equal) == (23, True)
        assert codec.loads(last)[0].keys() == found.learner.state().keys()
        for key, value in codec.loads(last)[0].items():
            assert value.tobytes() == found.learner.state()[key].tobytes()


def test_the_same_lists_count_once(tmp_path: Path) -> None:
    with Service(tmp_path / "store.db") as service:
        service.ready().put("shop", features=names(3), **LEARNER)
        found = lists(10)
        assert fine(post(service, "shop", found))["lists"] == 10
        assert fine(post(service, "shop", found))["known"] == 10  # the same body
        assert fine(post(service, "shop", found[:5]))["lists"] == 5  # other lists: nothing says they are the same
        named = [{**one, "id": f"n{t}"} for t, one in enumerate(found)]
        assert fine(post(service, "shop", named))["lists"] == 10
        told = fine(post(service, "shop", [*named[3:], {**found[0], "id": "new"}, {**found[0], "id": "new"}]))
        assert (told["lists"], told["known"]) == (1, 8)
        assert service.settle("shop") == 26
        service.act("shop", "reset")
        assert fine(post(service, "shop", named))["lists"] == 10  # what was forgotten may be learned again


def test_malformed_lines_are_named_and_counted(tmp_path: Path) -> None:
    good = json.dumps(lists(1)[0])
    wide = json.dumps({"items": ["a"], "features": [[1.0, 2.0]], "clicks": []})
    named = json.dumps({"items": [{"id": "a", "features": {"f0": 1, "f1": 2, "f9": 3}}], "clicks": []})
    text = json.dumps({"items": ["a"], "features": [[1.0, 2.0, "3"]], "clicks": []})
    nan = '{"items": ["a"], "features": [[NaN, 1, 2]], "clicks": []}'
    huge = json.dumps({"items": ["a"], "features": [[1, 2, 10**400]], "clicks": []})
    body = "\n".join([good, "{", "", wide, named, text, nan, huge, '{"items": ["a"], "clicks": []}']).encode()
    with Service(tmp_path / "store.db") as service:
        service.ready().put("shop", features=names(3))
        told = fine(post(service, "shop", body))
        assert (told["lists"], told["skipped"]) == (1, 7)
        lines = [problem.split(":")[0] for problem in told["problems"]]
        assert lines == [f"line {n}" for n in (2, 4, 5, 6, 7, 8, 9)]
        assert "has 2 features, but 3 are to be sent" in told["problems"][1]
        assert "unknown feature 'f9'" in told["problems"][2]
        assert "'f0' has no value" in told["problems"][4]
        assert "has no features" in told["problems"][6]
        refused(post(service, "shop", good.encode() + b"\n{", strict=True), 422, "JSON")
        assert service.settle("shop") == 1


def test_what_cannot_be_warmed_says_why(tmp_path: Path) -> None:
    with Service(tmp_path / "store.db", max_events=20, max_candidates=4) as service:
        service.ready().put("shop", features=names(3))
        service.put("graded", learner="rtopk", features=names(3))
        refused(post(service, "shop", b" \n"), 422)
        refused(post(service, "shop", lists(21)), 413, "21", "max_events")
        refused(post(service, "nobody", lists(1)), 404, "nobody")
        refused(post(service, "graded", lists(1)), 422, "grades")
        assert "max_candidates" in fine(post(service, "shop", lists(1)))["problems"][0]
        service.act("shop", "pause")
        refused(post(service, "shop", lists(1, n=3)), 409)


def test_a_ranker_that_was_reset_meanwhile_takes_nothing(tmp_path: Path) -> None:
    with Service(tmp_path / "store.db") as service:
        service.ready().put("shop", features=names(3))
        live = warm_start.target(service.engine, "shop")
        one = warm_start.adopted(service.engine, live, "key", parse_line(json.dumps(lists(1)[0]).encode()))
        service.act("shop", "reset")
        old = live.row._replace(epoch=live.row.epoch - 1)
        live.row = old
        with pytest.raises(Conflict):
            warm_start.add(service.engine, live, [one], Action(service.engine, "warm", "shop"), Backfilled(0, 0, 0))
        assert service.status("shop")["closed_impressions"] == 0


def test_warmed_lists_are_among_the_latest_and_can_be_erased(tmp_path: Path) -> None:
    with Service(tmp_path / "store.db", snapshot_seconds=0.1) as service:
        service.ready().put("shop", features=names(3))
        fine(post(service, "shop", [{**one, "user": "ann"} for one in lists(3)]))
        service.settle("shop")
        (newest, *others) = fine(service.http.get("/v1/rankers/shop/impressions"))
        assert len(others) == 2
        assert (newest["outcome"], newest["version"], newest["learned"]) == ("logged", "logged", True)
        assert sum(item["value"] for item in newest["items"]) == 1
        assert service.metric("rankloop_outcomes_total", kind="logged") == 3
        gone = fine(service.http.delete("/v1/users/ann"))
        assert gone["impressions"] + gone["pending"] == 3


def test_propensities_reach_estimates_and_change_nothing_that_is_learned(tmp_path: Path) -> None:
    found = lists(30, n=3)
    with Service(tmp_path / "store.db") as service:
        for name, told in (("with", {"propensity": 1 / 6}), ("without", {})):
            service.ready().put(name, features=names(3), **LEARNER)
            fine(post(service, name, [{**one, **told} for one in found]))
            service.settle(name)
        assert service.state("with") == service.state("without")
    with open_store(str(tmp_path / "store.db")) as database:
        tally = run_comparison(plan_comparison(database, "with", ["random"])).tally()
        assert (tally.drawn, tally.whole) == (30, 30)
        assert not tally.wins.any()  # what chance could have swapped is not known of a list that another drew
        assert run_comparison(plan_comparison(database, "without", ["random"])).tally().drawn == 0


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_warms_a_store_without_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "store.db")
    made(store)
    log = write_json_lines(tmp_path / "log.jsonl", lists(600))
    command("shop", str(log), "--store", store)
    told = json.loads(capsys.readouterr().out)
    assert (told["lists"], told["clicks"], told["known"], told["unlearned_impressions"]) == (600, 600, 0, 0)
    write_json_lines(log, lists(700))  # the file has grown
    command("shop", str(log), "--store", store)
    told = json.loads(capsys.readouterr().out)
    assert (told["lists"], told["known"]) == (100, 600)
    with open_store(store) as database:
        found = rebuild(database, "shop")
        assert (found.learned, found.equal) == (700, True)
        assert [one.name for one in found.compared] == ["snapshot"]
        entries = database.read(lambda connection: audit.entries(connection, 10))
    assert [(one.who, one.action, one.text.split()[0]) for one in entries if one.action == "warm"] == [
        (audit.COMMAND, "warm", "100"),
        (audit.COMMAND, "warm", "600"),
    ]


def test_strict_keeps_what_came_before_the_malformed_list(tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    made(store)
    log = write_json_lines(tmp_path / "log.jsonl", lists(300))
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:280], "{", *lines[280:]]))
    engine = Engine(Settings(store=store))
    engine.start()
    try:
        with pytest.raises(DataError, match=r"281.*JSON"):
            warm_start.warm(engine, "shop", LogReader([log], strict=True))
        assert warm_start.warm(engine, "shop", LogReader([log]))[:4] == (20, 20, 1, 280)
    finally:
        engine.stop()


@pytest.mark.slow
def test_killed_it_goes_on_and_learns_nothing_twice(tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    made(store)
    log = write_json_lines(tmp_path / "log.jsonl", lists(6000))
    words = [sys.executable, "-c", COMMAND, "warm-start", "shop", str(log), "--store", store, "--json"]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open_store(store) as database:

        def count() -> int:
            return sum(1 for _ in open_log_source(database).outcomes("shop", 0, 10_000))

        try:
            wait_for(lambda: count() >= 256 or first.poll() is not None, "lists to be learned")
        finally:
            first.kill()
            first.wait()
        before = count()
        assert before < 6000  # it was killed on the way
        told = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        assert told["known"] == before >= 256
        assert told["lists"] == 6000 - before
        assert count() == 6000
        found = rebuild(database, "shop")
        assert (found.seq, found.equal, found.failed) == (6000, True, 0)


def test_a_store_or_ranker_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_json_lines(tmp_path / "log.jsonl", lists(1))
    made(str(tmp_path / "store.db"))
    for ranker, store, words in (("shop", "nowhere.db", "there is no store"), ("shoe", "store.db", "did you mean")):
        with pytest.raises(SystemExit) as ended:
            main(["warm-start", ranker, str(log), "--store", str(tmp_path / store)])
        assert ended.value.code == 2
        assert words in capsys.readouterr().err
