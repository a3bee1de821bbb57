"""Specs, folders and what is said about a data set."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.lab.datasets.dataset import Split
from rankloop.lab.datasets.letor import read_letor
from rankloop.lab.datasets.sources import describe, open_split, write_letor
from rankloop.lab.runs.trial import Trial, run
from tests.reference import letor as naive

SHARED = Path(os.environ.get("RANKLOOP_SHARED", Path(__file__).parents[3] / "shared" / "data"))
real_data = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no data in {SHARED}; RANKLOOP_SHARED sets the folder")
compiled = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="megabytes of text take the compiler")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKLOOP_CACHE", str(tmp_path / "cache"))


def text(*queries: int, width: int = 2, grade: int = 1) -> str:
    return "".join(f"{grade} qid:{q} {width}:{q}\n0 qid:{q} 1:1\n" for q in queries)


def folder(at: Path, **files: str) -> Path:
    """A folder of files; `train_txt` is train.txt."""
    at.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (at / name.replace("_", ".")).write_text(content)
    return at


def queries(spec: object) -> list[list[str]]:
    return [part.queries.tolist() for part in open_split(str(spec)).parts.values()]


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            "synthetic:x",
            UnknownName,
            "no synthetic data set is called 'x'",
        ),
        ("no/such/file", UnknownName, "no data set 'no/such/file': no such file or folder"),
        ("synthetic:mslr?querys=3", InvalidParameter, "synthetic:mslr has no option 'querys'"),
        ("synthetic:mslr?queries=0", InvalidParameter, "queries is '0'"),
        ("synthetic:mslr?seed=-1", InvalidParameter, "seed is '-1'"),
        ("synthetic:mslr?docs=many", InvalidParameter, "docs is 'many'"),
        ("synthetic:mslr?relevance=odd", InvalidParameter, "relevance is 'odd'"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(spec: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        open_split(spec)


def test_a_folder_of_three_files_shares_width_and_scale(tmp_path: Path) -> None:
    at = folder(tmp_path / "set", train_txt=text(1, 2), valid_txt=text(3, width=5), test_txt=text(4, grade=4))
    split = open_split(f"{at}?normalize=none")
    parts = split.parts.values()
    assert [part.queries.tolist() for part in parts] == [["1", "2"], ["3"], ["4"]]
    assert [part.width for part in parts] == [5, 5, 5]
    assert [part.highest_grade for part in parts] == [4, 4, 4]
    assert [part.name for part in parts] == ["set/train", "set/vali", "set/test"]
    assert split.train.normalization == "none"
    assert open_split(str(at)).train.normalization == "query-minmax"


def test_yahoo_names_and_gzip(tmp_path: Path) -> None:
    at = folder(tmp_path, set1_train_txt=text(1), set1_test_txt=text(3), set2_train_txt=text(9))
    (at / "set1.valid.txt.gz").write_bytes(gzip.compress(text(2).encode()))
    assert queries(at) == [["1"], ["2"], ["3"]]


def test_without_vali_train_stays_whole_unless_a_share_is_asked_for(tmp_path: Path) -> None:
    at = folder(tmp_path, train_txt=text(*range(10)), test_txt=text(77))
    whole = open_split(str(at))
    assert (len(whole.train), whole.vali, len(whole.test)) == (10, None, 1)
    train, vali, test = queries(f"{at}?vali=0.2")
    assert (len(train), len(vali), test) == (8, 2, ["77"])
    assert sorted(train + vali) == [str(q) for q in range(10)]
    with pytest.raises(InvalidParameter, match=r"vali is 2\.0"):
        open_split(f"{at}?vali=2")
    with pytest.raises(InvalidParameter, match=r"has no vali part; add vali=0\.2"):
        run(Trial("pdgd", str(at), rounds=1, evaluate_on="vali"))


def test_folds(tmp_path: Path) -> None:
    for fold in (1, 2):
        files = {"train_txt": text(fold), "vali_txt": text(fold + 10), "test_txt": text(fold + 20)}
        folder(tmp_path / f"Fold{fold}", **files)
    assert queries(tmp_path) == [["1"], ["11"], ["21"]]
    assert queries(f"{tmp_path}?fold=2") == [["2"], ["12"], ["22"]]
    with pytest.raises(InvalidParameter, match=r"fold is 3, but .* has folds 1, 2"):
        open_split(f"{tmp_path}?fold=3")


def test_part_files_rotate(tmp_path: Path) -> None:
    folder(tmp_path, **{f"part{i}_txt": text(i) for i in range(1, 6)})
    assert queries(tmp_path) == [["3", "4", "5"], ["2"], ["1"]]
    assert queries(f"{tmp_path}?fold=5") == [["2", "3", "4"], ["1"], ["5"]]


def test_a_single_file_is_cut_and_has_no_folds(tmp_path: Path) -> None:
    file = folder(tmp_path, all_txt=text(*range(20))) / "all.txt"
    assert [len(part) for part in queries(file)] == [12, 4, 4]
    with pytest.raises(InvalidParameter, match=r"fold is '2', but .* has no folds"):
        open_split(f"{file}?fold=2")
    with pytest.raises(InvalidParameter, match="has no option 'seed'"):
        open_split(f"{file}?seed=2")


def test_describe(tmp_path: Path) -> None:
    at = folder(tmp_path, train_txt=text(1, 2, width=3), vali_txt="0 qid:5 1:1\n", test_txt=text(4))
    found = describe(open_split(f"{at}?normalize=none"))
    assert json.loads(json.dumps(found)) == found
    assert (found["features"], found["constant features"], found["highest grade"]) == (3, 0, 1)
    assert found["parts"]["train"] == {
        "queries": 2,
        "documents": 4,
        "documents per query": {"mean": 2, "min": 2, "10%": 2, "25%": 2, "50%": 2, "75%": 2, "90%": 2, "max": 2},
        "grades": [2, 2],
        "queries without relevant documents": 0.0,
        "zeros": 8 / 12,
    }
    assert found["parts"]["vali"]["queries without relevant documents"] == 1.0


def test_a_generated_set_survives_text(tmp_path: Path) -> None:
    train = open_split("synthetic:mq2008?queries=12&vali=1&test=1").train
    seen: list[tuple[int, int]] = []
    write_letor(train, tmp_path / "train.txt.gz", lambda done, total: seen.append((done, total)))
    again = read_letor(tmp_path / "train.txt.gz", normalize="none")
    assert again.features.tobytes() == train.features.tobytes()
    assert again.grades.tolist() == train.grades.tolist()
    assert seen[-1] == (len(train.grades), len(train.grades))


@real_data
@compiled
@pytest.mark.parametrize("name", ["clueweb09/part3.txt.gz", "websearch300/test.txt.gz", "querywise50/train.txt.gz"])
def test_real_files_read_as_the_naive_parser(name: str) -> None:
    found = read_letor(SHARED / name, normalize="none")
    with gzip.open(SHARED / name, "rt", newline="\n") as file:
        features, grades, ids, lengths = naive.parse(file.read())
    assert found.features.tobytes() == features.tobytes()
    assert found.grades.tolist() == grades.tolist()
    assert (found.queries.tolist(), np.diff(found.offsets).tolist()) == (ids, lengths)


@real_data
@compiled
def test_real_folders() -> None:
    clueweb = [open_split(f"{SHARED / 'clueweb09'}?fold={fold}") for fold in (1, 5)]
    for split in clueweb:
        assert sum(len(part) for part in split.parts.values()) == 61
        assert sum(len(part.grades) for part in split.parts.values()) == 26646
        assert (split.train.width, split.test.highest_grade) == (42, 4)
    assert clueweb[0].test.queries.tolist() != clueweb[1].test.queries.tolist()
    web = open_split(str(SHARED / "websearch300"))
    assert (len(web.train), web.vali, len(web.test), web.train.width) == (201, None, 50, 300)


def test_a_run_learns_the_sizes_of_raw_features() -> None:
    """`normalize=stream`: multiplied by powers of two, features give the same run; unscaled ones another."""
    spec = "synthetic:mq2008?queries=20&vali=2&test=10"
    curves = {}
    for how in ("stream", "none"):
        split = open_split(f"{spec}&normalize={how}")
        assert split.train.normalization == how
        for power in (0, 8):
            sizes = 2.0 ** (power * (np.arange(split.train.width) % 3))
            parts = [replace(part, features=part.features * sizes, _candidates={}) for part in split.parts.values()]
            curves[how, power] = run(Trial("pairrank", rounds=60, evaluations=2), Split(*parts)).measures["online.ndcg"]
    assert curves["stream", 0].tolist() == curves["stream", 8].tolist()
    assert curves["none", 0].tolist() != curves["none", 8].tolist()
