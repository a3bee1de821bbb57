"""Every command of the README and the docs is run as it is printed, but for ports and places.

The README's own lines and the tutorial have tests that also look at what is printed (`tests/service/test_readme.py`,
`test_tutorial.py`). Long runs of the lab are run with a few rounds here.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.cli import build
from rankloop.client import Client
from rankloop.lab.datasets.sources import open_split, write_letor
from tests.adapters.test_metarank import CONFIG
from tests.clicks.truths import pages as result_pages
from tests.clicks.truths import truth
from tests.commands.pages import BLOCK, ROOT, URL, begin_and_end, blocks, carry_out, lines, pages, plain, said_by
from tests.examples.library import library
from tests.logged.logs import lists, rows_of, write_json_lines, write_parquet, write_tsv
from tests.logged.test_engines import EVENTS, RESPONSES
from tests.service.conftest import start_service
from tests.service.running import Service, free_port
from tests.service.scripted import Said, Server
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow

__all__ = ["start_service"]  # a fixture
Start = Callable[..., Service]
ELSEWHERE = {  # page -> the test that runs it
    "README.md": "tests/service/test_readme.py",
    "docs/tutorial.md": "tests/service/test_tutorial.py",
}
ALONE = ("docs/add-a-learner.md", "docs/in-the-shell.md", "docs/click-models.md", "docs/search.md")
OF_THE_LAB = ("docs/interleaving.md", "docs/lab.md", "docs/scaling.md")
SMALL = {"--rounds": "40", "--seeds": "1", "--processes": "1"}
# Minutes each, or a cluster (tests/lab/test_on_dask.py has a real one): whether they can be said is tried here.
LONG = re.compile(r"rankloop (reproduce|sweep|clicks fit)|.* --cluster tcp:")


@pytest.fixture(autouse=True)
def _needs_a_shell() -> None:
    for program in ("bash", "curl", "jq"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine")


def taught(service: Service, **spec: Any) -> None:
    """A ranker `shop` that has learned something, and three versions of it."""
    names = spec.setdefault("features", ["title_bm25", "price"])
    assert service.ask("PUT", "/v1/rankers/shop", {"exposure": "full", **spec}).status in (200, 201)
    wait_for(lambda: service.status("shop")["ready"], "the kernels of shop")
    rng = np.random.default_rng(0)
    patience: dict[str, Any] = {"timeout": PATIENCE, "rank_timeout": PATIENCE}
    with Client(f"http://127.0.0.1:{service.port}", queue=0, **patience) as client:
        for t in range(24):
            rows = rng.random((5, len(names)))
            answer = client.rank("shop", ids=[f"i{i}" for i in range(5)], features=rows, query=f"q{t % 3}")
            best = max(answer.items, key=lambda item: rows[int(str(item.id)[1:])][0]).id
            receipt = client.click(answer, [best])
            assert receipt is not None
            assert receipt.status == "accepted"
            if t % 8 == 7:
                wait_for(lambda n=t: service.status("shop")["learned_impressions"] == n + 1, "it to be learned")  # type: ignore[misc]
                client.keep_version("shop")


@pytest.fixture
def engine() -> Iterator[Server]:
    """Where Elasticsearch or Solr would be: it takes what it is sent."""
    with Server(lambda _: Said(200, {"acknowledged": True})) as server:
        yield server


def all_said(text: str) -> str:
    return "".join(said_by(shlex.split(line)[1:]) for line in lines(text))


def run_page(page: str, folder: Path, service: Service | None = None, **others: str) -> list[str]:
    """All blocks of a page; what each prints."""
    told = []
    for block in blocks(page):
        text = block.text
        if service is not None:
            text = text.replace(URL, f"http://127.0.0.1:{service.port}")
        for name, place in others.items():
            text = text.replace(name, place)
        text = re.sub(r"curl (?=-|h|')", "curl -sSf ", text)
        told.append(all_said(text) if plain(text) else carry_out(text, folder))
    return told


def test_a_learner_of_your_own_is_checked_and_compared(tmp_path: Path) -> None:
    page = "docs/add-a-learner.md"
    (code,) = re.findall(r"(?s)```python\n(.*?)```", text_of(page))
    (tmp_path / "thompson.py").write_text(code, "utf-8")
    path = {"PYTHONPATH=.": f"PYTHONPATH=.:{ROOT / 'src'}"}
    checked, compared = run_page(page, tmp_path, None, **path, **{"--rounds 1000": "--rounds 40"})
    assert "BROKEN" not in checked
    assert "thompson:LinearThompson" in compared


def test_every_page_with_commands_is_run() -> None:
    run = {*ELSEWHERE, *OF_THE_LAB, *SERVED, *ALONE}
    assert set(pages()) == run, "a page with commands that nobody runs, or a test of a page without: add a scene"
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text("utf-8")


# -- the lab ---------------------------------------------------------------------------------------------------------


def small(line: str) -> list[str]:
    """The words of a line, with less to compute."""
    words = shlex.split(line)[1:]
    for flag, value in SMALL.items():
        if flag in words:
            words[words.index(flag) + 1] = value
    if words[0] in ("compare", "simulate", "interleave") and "--rounds" not in words:
        words += ["--rounds", SMALL["--rounds"]]
    return words


def lab_folder(folder: Path) -> None:
    """What the pages suppose: a data set on the disk, a click log, a sweep."""
    for part in ("train", "vali", "test"):
        place = folder / "path" / "to" / "MSLR-WEB10K" / "Fold1" / f"{part}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_letor(getattr(open_split("synthetic:mq2007?queries=10"), part), place)
    (folder / "alpha.toml").write_text(re.findall(r"(?s)```toml\n(name.*?)```", text_of("docs/lab.md"))[0])
    rng = np.random.default_rng(0)
    for name in ("serps", "next-week"):
        log = truth("pbm").simulate(result_pages(600, rng, shortest=2), rng)
        queries, documents = log.pairs.names()
        rows = ["session\tquery\tdocs\tclicks"]
        for i, n in enumerate(log.lengths):
            shown, flags = ",".join(documents[log.shown[i, :n]]), ",".join(map(str, log.clicks[i, :n]))
            rows.append(f"{log.session_names[log.sessions[i]]}\t{queries[log.shown[i, 0]]}\t{shown}\t{flags}")
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress("\n".join([*rows, ""]).encode()))


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def can_be_said(words: list[str]) -> None:
    """Whether a line can be said: its words are taken apart as the command would, and nothing is run."""
    build().parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", OF_THE_LAB)
def test_of_the_lab(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab_folder(tmp_path)
    for block in blocks(page):
        for line in lines(block.text):
            if line.startswith("rankloop "):
                (can_be_said if LONG.match(line) else said_by)(small(line))
            else:
                assert line.startswith(("pip install", "dask scheduler", "dask worker")), line


def test_click_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab_folder(tmp_path)
    run_page("docs/click-models.md", tmp_path)
    assert (tmp_path / "bias.png").stat().st_size > 1000


def test_in_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_service: Start) -> None:
    monkeypatch.chdir(tmp_path)
    lab_folder(tmp_path)
    service = start_service(store=tmp_path / "rankloop.db", port=free_port())
    taught(service)
    monkeypatch.setenv("RANKLOOP_PORT", str(service.port))
    for block in blocks("docs/in-the-shell.md"):
        for line in lines(block.text):
            if line.startswith("make "):
                continue
            words = small(line)
            if words[0] == "serve":
                more = ["--port", str(free_port())]
                store = {"RANKLOOP_STORE": str(tmp_path / f"{words[0]}.db")}
                begin_and_end(shlex.join(["rankloop", *words, *more]), tmp_path, "http://127.0.0.1:", **store)
            elif words[0] == "bench":  # it finds the service by itself where that is at its own port
                words[words.index("--seconds") + 1] = "1"
                said_by(["bench", f"http://127.0.0.1:{service.port}", *words[1:]])
            else:
                (can_be_said if LONG.match(line) else said_by)(words)


def test_search(tmp_path: Path) -> None:
    """Of a small library, since all that is installed here is a minute's reading."""
    where = ["--path", str(library(tmp_path / "lib")), "--no-browser", "--port"]
    for block in blocks("docs/search.md"):
        for line in lines(block.text):
            words = [*shlex.split(line), *where, str(free_port())]
            begin_and_end(shlex.join(words), tmp_path, "http://127.0.0.1:", RANKLOOP_CACHE=str(tmp_path / "cache"))


# -- the service -----------------------------------------------------------------------------------------------------


def of_browsers(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    run_page("docs/browser.md", folder)


def of_catalogs(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    service = start(store=folder / "rankloop.db")
    here = {"--catalog shop": f"--catalog shop --url {URL}", "show shop": f"show shop --url {URL}"}
    here = {said: there.replace(URL, f"http://127.0.0.1:{service.port}") for said, there in here.items()}
    loading, ranking = run_page("docs/catalog.md", folder, service, **here)
    assert "boot" in ranking
    assert "3" in loading


def of_experiments(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    service = start(store=folder / "rankloop.db")
    taught(service)
    (told,) = run_page("docs/experiments.md", folder, service)
    assert '"state":"stopped"' in told


def of_changes(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    service = start(store=folder / "rankloop.db")
    taught(service, features=["bm25", "price", "clicks_7d"])
    (told,) = run_page("docs/changing.md", folder, service)
    changed = json.loads(told)["changed"]
    assert (changed["carried"], changed["added"], changed["removed"]) == (
        ["bm25", "price_eur"],
        ["rating"],
        ["clicks_7d"],
    )


def of_exports(folder: Path, start: Start, engine: Server) -> None:
    service = start(store=folder / "rankloop.db")
    taught(service)
    (folder / "etc").mkdir()
    places = {"/data/rankloop.db": str(folder / "rankloop.db"), "/etc/shop/": f"{folder}/etc/"}
    run_page(
        "docs/export.md",
        folder,
        service,
        **places,
        **dict.fromkeys(("http://localhost:9200", "http://localhost:8983"), engine.url),
    )
    names = [asked.json["model"]["name"] for asked in engine.asked if asked.path.endswith("_createmodel")]
    assert names == ["shop-v3", "shop-v4"]
    assert (folder / "etc" / "model-in-use").read_text() == "shop-v4\n"


def of_metarank(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    service = start(store=folder / "rankloop.db")
    (folder / "config.yml").write_text(CONFIG)
    item = {"event": "item", "id": "x", "timestamp": "1599391467000", "item": "i1", "fields": []}
    (folder / "events.jsonl").write_text(json.dumps(item) + "\n")
    _, told = run_page("docs/migrate-metarank.md", folder, service)
    assert '"item":"i3"' in told


def of_lightgbm(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    """The scripts of the page are run, too."""
    service = start(store=folder / "rankloop.db")
    logged = [{**one, "query": f"q{t % 20}"} for t, one in enumerate(lists(60, n=8))]
    write_tsv(folder / "log.tsv", rows_of(logged))
    for name, script in re.findall(r'(?s)```python title="(.*?)"\n(.*?)```', text_of("docs/migrate-lightgbm.md")):
        script = script.replace(URL, f"http://127.0.0.1:{service.port}")
        (folder / name).write_text(script)
    told = run_page("docs/migrate-lightgbm.md", folder, service)
    assert "sandal" in told[2]
    wait_for(lambda: service.status("shop")["learned_impressions"] == 1, "the click")
    assert service.status("shop")["spec"]["exposure"] == "bounded"


def of_personalizer(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    service = start(store=folder / "rankloop.db")
    (folder / "settings.json").write_text('{"rewardWaitTime": "PT1H", "learningMode": "Online"}')
    _, told = run_page("docs/migrate-personalizer.md", folder, service)
    assert '"rewardActionId"' in told


def of_backups(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    service = start(store=folder / "rankloop.db")
    taught(service)
    service.stop()
    (folder / "backups").mkdir()
    place = "/srv/rankloop/rankloop.db"
    newest = f"$(ls {folder}/backups/*)"
    moved = {f"/srv/backups/rankloop-2026-08-01.db --store {place}": f"{newest} --store {folder}/restored.db"}
    told = run_page(
        "docs/backup.md", folder, None, **moved, **{place: f"{folder}/rankloop.db", "/srv/backups": f"{folder}/backups"}
    )
    assert len(list((folder / "backups").iterdir())) == 1
    assert (folder / "restored.db").exists()
    assert (folder / "ann-4711.json").exists()
    assert "Recovery point" in told[0]


def of_operations(folder: Path, start: Start, engine: Server) -> None:
    del start, engine
    run_page("docs/operations.md", folder)


def of_the_service(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    serve, keys = blocks("docs/service.md")
    (line,) = lines(serve.text)
    begin_and_end(f"{line} --port {free_port()}", folder, "http://127.0.0.1:")
    assert "shop-web" in all_said(keys.text)


def of_replay(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    taught(start(store=folder / "rankloop.db"))
    run_page("docs/replay.md", folder, None, **{"/srv/log": str(folder / "log")})


def of_ubi(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    (told,) = run_page("docs/ubi.md", folder, start(store=folder / "rankloop.db"))
    assert "orphan" in told


def of_warm_starts(folder: Path, start: Start, engine: Server) -> None:  # noqa: ARG001
    service = start(store=folder / "rankloop.db")
    names = [f"f{j}" for j in range(3)]
    for ranker, features in (("shop", names), ("engine", ["title", "body"])):
        assert service.ask("PUT", f"/v1/rankers/{ranker}", {"features": features}).status == 201
    for name, seed in (("monday.jsonl", 0), ("tuesday.jsonl.gz", 1), ("log.jsonl", 2)):
        write_json_lines(folder / name, lists(6, seed=seed))
    write_tsv(folder / "log.tsv", rows_of(lists(6, seed=3)))
    write_parquet(folder / "log.parquet", rows_of(lists(6, seed=4)))
    write_json_lines(folder / "responses.jsonl", RESPONSES)
    write_json_lines(folder / "events.jsonl", EVENTS)
    run_page("docs/warm.md", folder, service, **{"warm-start shop responses": "warm-start engine responses"})
    wait_for(lambda: service.status("shop")["closed_impressions"] == 24, "all lists")
    assert service.status("engine")["closed_impressions"] == 2


SERVED: dict[str, Callable[[Path, Start, Server], None]] = {
    "docs/backup.md": of_backups,
    "docs/browser.md": of_browsers,
    "docs/catalog.md": of_catalogs,
    "docs/changing.md": of_changes,
    "docs/experiments.md": of_experiments,
    "docs/export.md": of_exports,
    "docs/migrate-lightgbm.md": of_lightgbm,
    "docs/migrate-metarank.md": of_metarank,
    "docs/migrate-personalizer.md": of_personalizer,
    "docs/operations.md": of_operations,
    "docs/service.md": of_the_service,
    "docs/replay.md": of_replay,
    "docs/ubi.md": of_ubi,
    "docs/warm.md": of_warm_starts,
}


@pytest.mark.parametrize("page", SERVED)
def test_of_the_service(
    page: str, tmp_path: Path, start_service: Start, engine: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert BLOCK.search(text_of(page))
    monkeypatch.chdir(tmp_path)
    SERVED[page](tmp_path, start_service, engine)
