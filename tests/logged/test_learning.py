"""A learner taught with logged lists: through adopt and learn, resumable to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankloop
from rankloop.cli import main
from rankloop.core import codec
from rankloop.core.errors import CodecError, DataError, InvalidParameter
from rankloop.core.learner import Learner
from rankloop.logs import CandidateBuilder, LogReader, parse_line, warm_start_file
from tests.logged.logs import lists, rows_of, write_json_lines, write_parquet, write_tsv

SPEC = {"pairs": "matched"}  # learning draws random numbers


def bits(learner: Learner) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in learner.state().items()}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_json_lines(tmp_path / "log.jsonl", lists(120))


def test_it_is_what_adopt_and_learn_do(log: Path) -> None:
    taught, by_hand = rankloop.make("pairrank", **SPEC), rankloop.make("pairrank", **SPEC)
    found = [parse_line(line) for line in log.read_bytes().splitlines()]
    report = rankloop.warm_start(taught, found, seed=3)
    streams, features = rankloop.Rng(3), CandidateBuilder()
    for n, one in enumerate(found):
        shown = by_hand.adopt(features.candidates(one), np.arange(len(one.clicks)))
        by_hand.learn(shown, rankloop.Feedback.clicks(one.clicks), streams.for_event("learn", n))
    assert bits(taught) == bits(by_hand)
    assert (report.lists, report.clicks) == (120, 120)
    fresh = lists(1, n=30, seed=9)[0]
    candidates = features.candidates(parse_line(json.dumps(fresh).encode()))
    assert candidates.features is not None
    assert candidates.features[taught.best(candidates, 1)[0], 0] > 0.9  # users like f0


def test_all_formats_teach_the_same_bits(tmp_path: Path, log: Path) -> None:
    rows = rows_of(lists(120))
    paths = [log, write_tsv(tmp_path / "log.tsv", rows), write_parquet(tmp_path / "log.parquet", rows)]
    taught = []
    for path in paths:
        learner = rankloop.make("pairrank", **SPEC)
        report = warm_start_file(learner, tmp_path / "out", LogReader([path]))
        assert report.lists == 120
        taught.append(bits(rankloop.load(tmp_path / "out")))
    assert taught[0] == taught[1] == taught[2]


def test_sizes_are_learned_with_the_lists(tmp_path: Path, log: Path) -> None:
    """`--normalization stream`: raw features, and a file that goes on with their sizes."""
    out = tmp_path / "warm.rankloop"
    taught = ["--learner", "pairrank?pairs=matched", "--normalization", "stream"]
    with pytest.raises(SystemExit, match="0"):
        main(["warm-start", *taught, "--out", str(out), str(log)])
    by_hand = rankloop.standardized(rankloop.make("pairrank", **SPEC))
    rankloop.warm_start(by_hand, map(parse_line, log.read_bytes().splitlines()), features=CandidateBuilder(scale=False))
    assert bits(rankloop.load(out)) == bits(by_hand)
    assert by_hand.scaler.lists == 120


@pytest.mark.parametrize("at", [1, 37, 119])
def test_what_is_broken_off_goes_on_and_gives_the_same_bits(tmp_path: Path, log: Path, at: int) -> None:
    whole = rankloop.make("pairrank", **SPEC)
    warm_start_file(whole, tmp_path / "whole", LogReader([log]))

    class Broken(LogReader):
        def __iter__(self) -> Any:
            for n, raw in enumerate(super().__iter__()):
                if n == at:
                    raise KeyboardInterrupt
                yield raw

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        warm_start_file(rankloop.make("pairrank", **SPEC), out, Broken([log]))
    assert not out.exists()
    again = rankloop.make("pairrank", **SPEC)
    report = warm_start_file(again, out, LogReader([log]))
    assert (report.lists, report.known) == (120, at)
    assert bits(again) == bits(whole) == bits(rankloop.load(out))
    assert not Path(f"{out}.part").exists()


def test_a_note_of_something_else_is_refused(tmp_path: Path, log: Path) -> None:
    part, out = tmp_path / "out.part", tmp_path / "out"

    class Broken(LogReader):
        def __iter__(self) -> Any:
            for n, raw in enumerate(super().__iter__()):
                if n == 50:
                    raise KeyboardInterrupt
                yield raw

    with pytest.raises(KeyboardInterrupt):
        warm_start_file(rankloop.make("pairrank"), out, Broken([log]), features=CandidateBuilder(["f0", "f1", "f2"]))
    kept = part.read_bytes()
    with pytest.raises(InvalidParameter, match="started with params"):
        warm_start_file(rankloop.make("pairrank", alpha=0.9), out, LogReader([log]))
    with pytest.raises(InvalidParameter, match="other features"):
        warm_start_file(rankloop.make("pairrank"), out, LogReader([log]), features=CandidateBuilder(["f2", "f1", "f0"]))
    with pytest.raises(DataError, match="other logs"):
        warm_start_file(
            rankloop.make("pairrank"), out, LogReader([write_json_lines(tmp_path / "b.jsonl", lists(120, seed=1))])
        )
    with pytest.raises(DataError, match="longer logs"):
        warm_start_file(rankloop.make("pairrank"), out, LogReader([write_json_lines(tmp_path / "c.jsonl", lists(9))]))
    assert part.read_bytes() == kept
    part.write_bytes(codec.dumps({}))
    with pytest.raises(CodecError, match="delete it"):
        warm_start_file(rankloop.make("pairrank"), out, LogReader([log]))


def test_the_command_teaches_a_learner(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = log.read_text().splitlines()
    log.write_text("\n".join([*text[:7], '{"items": ["a"], "clicks": ["b"]}', *text[7:]]))
    out = tmp_path / "warm.rankloop"
    order = ["warm-start", "--learner", "pairrank?init=base", "--out", str(out), str(log)]
    with pytest.raises(SystemExit) as ended:
        main([*order, "--json"])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert (told["lists"], told["clicks"], told["skipped"]) == (120, 120, 1)
    assert f"{log}:8: clicked but not shown: 'b'" in printed.err.replace("\n", "")
    assert rankloop.params(rankloop.load(out))["init"] == "base"
    with pytest.raises(SystemExit) as ended:
        main([*order, "--strict"])
    assert ended.value.code == 2
    assert "log.jsonl:8: clicked but not shown" in capsys.readouterr().err
