"""Papers as data, the engine that carries them out, and all of them in a tiny form, looked at by verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop import cli
from rankloop.clicks.bandit_models import fit_if_log
from rankloop.core.errors import DataError, InvalidParameter
from rankloop.core.presets import PUBLISHED
from rankloop.core.registry import make
from rankloop.lab.plots.cells import Results
from rankloop.lab.plots.report import ClaimResult
from rankloop.lab.plots.tables import Ends
from rankloop.lab.runs.results import read_results
from rankloop.lab.runs.sweep import Event
from rankloop.papers import PAPERS, bubblerank, engine, observability, open_paper
from rankloop.papers.claims import RULE, Claim, Computed, Higher, Level, Never
from rankloop.papers.engine import Contender, Paper, Part, TuningStep

DATA = "synthetic:mq2008?queries=20&vali=6&test=12&features=6"


# -- papers as data --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPERS)
def test_claims_speak_of_contenders_that_run(name: str) -> None:
    paper = open_paper(name)
    labels = {part.name: {c.name for c in part.contenders} for part in paper.parts}
    for claim in paper.claims:
        if isinstance(claim, Computed):
            continue
        said = [
            value for field in ("high", "low", "who", "floor", "ceiling") for value in _names(getattr(claim, field, ()))
        ]
        assert said, claim.text
        assert set(said) <= labels[claim.part], claim.text  # type: ignore[attr-defined]
        assert claim.where, claim.text  # type: ignore[attr-defined]
    assert len({claim.check(Results({})).claim for claim in paper.claims if not isinstance(claim, Computed)}) >= 10


def _names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


@pytest.mark.parametrize("name", PAPERS)
def test_every_contender_can_be_made_and_published_ones_are_among_them(name: str) -> None:
    paper = open_paper(name)
    published = set()
    for part in paper.parts:
        for c in part.contenders:
            published.add(c.learner.partition("?")[0])
            for params in c.grid:
                given = {key: 1e-6 if value == "1/n" else value for key, value in params.items()}
                learner, every = engine.PlannedRun(part, c, given, "", "", part.rounds, 0).learner
                make(learner, **every)
        assert part.seeds >= 3, "with fewer nothing can be sure"
        quick = replace(part, **part.quick)
        assert quick.rounds * quick.seeds <= part.rounds * part.seeds
    assert published & set(PUBLISHED)
    assert all(part.seeds >= 5 for part in paper.parts) or name == "bubblerank"


@pytest.mark.slow
def test_the_page_on_what_can_be_learned_has_these_tables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text("utf-8")
    for table in observability.tables():
        assert table.markdown().partition("\n\n")[2].strip() in page, "copy it from `rankloop reproduce topk`"


# -- the engine ------------------------------------------------------------------------------------------------------

BEST, FLOOR = "offline", "random"
TINY = Paper(
    "tiny",
    "Nobody: Nothing. 2026",
    "A tiny paper",
    "Two learners.",
    "much.",
    (
        Part(
            "main",
            (
                Contender(BEST, "offline-ranknet"),
                Contender(FLOOR, "random"),
                Contender("tuned", "pdgd", ({"rate": 0.1}, {"rate": 1e-9})),
                Contender("twin", "pdgd", ({"decay": 1.0},), tuned_like="tuned"),
                Contender("same", "pdgd?rate=0.1"),
            ),
            (DATA,),
            rounds=40,
            seeds=3,
            users=("perfect",),
            tuning=(TuningStep(30, 2, 2), TuningStep(60, 2, 1)),
        ),
    ),
    (
        Higher("the ceiling is above the floor", "1", "offline.ndcg@10", BEST, FLOOR),
        Higher("the floor is above the ceiling", "2", "offline.ndcg@10", FLOOR, BEST),
        Higher("nobody measures it", "3", "cosine", BEST, FLOOR),
        Computed("it is so", "4", lambda _: ("computed", True)),
    ),
    (engine.curves("held-out", "Figure 1.", "offline.ndcg@10"),),
    (Ends("Ends", "offline.ndcg@10"),),
)


def test_an_experiment_from_end_to_end(tmp_path: Path) -> None:
    told: list[str] = []
    done = engine.reproduce(TINY, tmp_path, on_step=told.append)
    assert [claim.verdict for claim in done.claims] == ["supported", "refuted", "not tested", "supported"]
    assert told[0] == "main: tuning, 1 of 2, 4 runs"
    assert "main: 15 runs" in told
    page = done.page.read_text("utf-8")
    assert done.page == tmp_path / "tiny.md"
    for text in (RULE, "The paper: much.", "rankloop reproduce tiny", "core-minutes", "| main | twin | pdgd |"):
        assert page.count(text) == 1
    assert all((tmp_path / link).is_file() for link in re.findall(r"\]\((\S+\.png)\)", page))
    assert "refuted" in page

    events: list[Event] = []
    again = engine.reproduce(TINY, tmp_path, on_event=events.append)
    assert {event.kind for event in events} == {"kept"}
    assert again.page.read_text("utf-8") == page


def test_with_one_seed_nothing_is_decided(tmp_path: Path) -> None:
    one_seed = replace(TINY, parts=(replace(TINY.parts[0], seeds=1, contenders=TINY.parts[0].contenders[:2]),))
    done = engine.reproduce(one_seed, tmp_path)
    assert [claim.verdict for claim in done.claims] == ["undecided", "undecided", "not tested", "supported"]


def test_settings_are_chosen_on_other_seeds_and_the_validation_part(tmp_path: Path) -> None:
    engine.reproduce(TINY, tmp_path)
    looks = [read_results(tmp_path / f"main-choice-{step}.parquet").to_pylist() for step in (1, 2)]
    assert {row["evaluate_on"] for look in looks for row in look} == {"vali"}
    assert {row["seed"] for look in looks for row in look} == {100, 101}
    assert [{row["rounds"] for row in look} for look in looks] == [{30}, {60}]
    ends: dict[str, list[float]] = {}
    for row in looks[1]:
        ends.setdefault(row["params"], []).append(row["offline.ndcg@10"])
    best = json.loads(max(ends, key=lambda params: float(np.mean(ends[params]))))
    table = read_results(tmp_path / "main.parquet")
    ran = {json.dumps(json.loads(params), sort_keys=True) for params in table["params"].to_pylist()}
    assert {json.dumps(p, sort_keys=True) for p in (best, {**best, "decay": 1.0})} <= ran
    assert set(table["seed"].to_pylist()) == {0, 1, 2}
    assert set(table["evaluate_on"].to_pylist()) == {"test"}


# -- all papers in a tiny form -----------------------------------------------------------------------------------------

_ITEMS, _SLOPES, _SURROGATES, _CONTEXT = open_paper("topk").parts
SMALL: dict[str, tuple[Callable[[Part], dict[str, Any]], tuple[Claim, ...]]] = {
    "pairrank": (
        lambda part: {"data": (DATA,), "rounds": 40, "seeds": 2, "tuning": tuple(TuningStep(10) for _ in part.tuning)},
        (Higher("!", "", "offline.ndcg@10", "offline RankNet", "random", users="perfect"),),
    ),
    "neural": (
        lambda part: (
            {"data": (DATA,), "rounds": 25, "seeds": 2, "tuning": tuple(TuningStep(5) for _ in part.tuning)}
            | {"users": ("perfect",)}
            | ({"seeds": 4} if part.name == "theory" else {})
        ),
        (Level("!", "", "online.misordered", "olRankNet", part="theory"),),
    ),
    "nonstationary": (
        lambda part: {
            "data": (DATA,),
            "rounds": 520 if part.name == "tracking" else 30,
            "seeds": 2,
            "users": ("perfect",),
        },
        (Higher("!", "", "state_bytes", "DM²L", "DBGD"),),
    ),
    "bubblerank": (
        lambda part: (
            {"data": part.data if part.name == "examination" else ("generated?queries=3&documents=6",)}
            | {"rounds": 5000, "seeds": 2}
        ),
        (Never("!", "", "unsafe", ("BubbleRank0", "BubbleRankKL"), part="safety"),),
    ),
    "topk": (
        lambda part: (
            {"data": (DATA,) if part.name == "main" else part.data, "rounds": 2000, "seeds": 3}
            | {"tuning": tuple(TuningStep(100, 1, 2) for _ in part.tuning)}
        ),
        (Higher("!", "", "average_regret", "K = 400", "FTPL, all grades", part="items"),),
    ),
}
TURNED: dict[str, Claim] = {
    "pairrank": Higher("?", "", "offline.ndcg@10", "random", "offline RankNet", users="perfect"),
    "neural": Level("?", "", "online.misordered", "olRankNet", part="theory", above=1e9),
    "nonstationary": Higher("?", "", "state_bytes", "DBGD", "DM²L"),
    "bubblerank": Never("?", "", "unsafe", ("CascadeKL-UCB",), part="safety"),
    "topk": Higher("?", "", "average_regret", "FTPL, all grades", "K = 400", part="items"),
}


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.slow
def test_a_paper_in_small(name: str, tmp_path: Path) -> None:
    shrink, sure = SMALL[name]
    whole = open_paper(name)
    few = [replace(c, grid=c.grid[:2], seeds=0) for part in whole.parts for c in part.contenders]
    by_part = iter(few)
    parts = tuple(
        replace(part, contenders=tuple(next(by_part) for _ in part.contenders), **shrink(part)) for part in whole.parts
    )
    paper = replace(whole, parts=parts, claims=(*whole.claims, *sure, TURNED[name]))
    done = engine.reproduce(paper, tmp_path)
    verdicts = {claim.claim: claim.verdict for claim in done.claims}
    assert (verdicts["!"], verdicts["?"]) == ("supported", "refuted")
    assert list(verdicts.values()).count("not tested") <= 3, verdicts  # of users, or a decade of rounds, not there
    page = done.page.read_text("utf-8")
    for part in parts:
        for contender in part.contenders:
            assert f"| {part.name} | {contender.name} |" in page
    pictures = re.findall(r"\]\((\S+\.png)\)", page)
    assert len(pictures) == len(whole.figures)
    assert all((tmp_path / picture).is_file() for picture in pictures)


# -- click models from a raw log ----------------------------------------------------------------------------------


def test_a_raw_log_gives_its_most_frequent_queries(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for session in range(300):
        query = "often" if session % 3 else "seldom"
        documents = [f"{query[0]}{i}" for i in rng.permutation(12)[:10]]
        clicks = ["1" if int(d[1:]) < 3 and rng.random() < 0.6 else "0" for d in documents]
        lines.append(f"{session}\t{query}\t{','.join(documents)}\t{','.join(clicks)}")
    lines += ["x\tshort\ta,b\t0,1"] * 500
    log = tmp_path / "log.tsv"
    log.write_text("\n".join(lines) + "\n")
    part = replace(bubblerank.REGRETS, data=(fit_if_log(str(log), tmp_path),))
    cells = bubblerank.queries_of(part)
    assert [(data.rpartition("#")[2], user) for data, user in cells] == [
        ("often", "CM"),
        ("seldom", "CM"),
        ("often", "PBM"),
        ("seldom", "PBM"),
    ]
    models = json.loads(Path(part.data[0]).read_text("utf-8"))
    assert {len(query["attraction"]) for model in models.values() for query in model.values()} == {10}
    assert fit_if_log("generated?queries=2", tmp_path) == "generated?queries=2"
    with pytest.raises(DataError, match="stands in two"):
        bubblerank.queries_of(replace(part, data=("generated?queries=1", "generated?queries=1&seed=3")))


# -- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", *arguments])
    return int(ended.value.code or 0)


def test_the_command_ends_in_a_table_that_people_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rankloop.papers.open_paper", lambda _: TINY)
    assert run("pairrank", "--quick", "--out", str(tmp_path), "--processes", "1") == 0
    printed = capsys.readouterr()
    assert "4 claims: 2 supported, 1 refuted, 1 not tested." in printed.out
    assert "the ceiling is above the floor" in printed.out
    assert "| ---" not in printed.out
    assert "main: tuning, 1 of 2" in printed.err  # no silence in a log
    assert "wrote" in printed.err


@pytest.mark.slow
def test_what_can_be_learned_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topk", "--observability") == 0
    printed = capsys.readouterr().out
    for text in ("Table 1", "Table 2", "best regret", "Lemma 12"):
        assert text in printed
    for game, said in observability.GAMES:  # what was computed is what the paper text, where it says something
        if not said.startswith("open"):
            assert game.regret.removesuffix("at most") in said or "at most" in said or "globally" in said
    assert run("pairrank", "--observability") == 2
    assert isinstance(InvalidParameter("x"), ValueError)


def test_claims_are_shown_by_color_and_by_word(capsys: pytest.CaptureFixture[str]) -> None:
    from rankloop.cli.reproduce import print_claims

    print_claims("t", [ClaimResult("[bold]a[/bold]", "0.1", "undecided", "4")])
    assert "[bold]a[/bold]" in capsys.readouterr().out
