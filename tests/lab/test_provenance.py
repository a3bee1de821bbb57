"""Stored runs do not outlive the code that computed them, nor the data that they read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankloop.core import sources
from rankloop.core.errors import RankloopError
from rankloop.core.sources import code_of, sources_of
from rankloop.lab.datasets.sources import open_split, write_letor
from rankloop.lab.runs.bandit_trial import BanditTrial
from rankloop.lab.runs.provenance import provenance
from rankloop.lab.runs.sweep import Event, run_trials
from rankloop.lab.runs.trial import Trial

SOURCE = Path(sources.__file__).parents[1]
TINY = "synthetic:mq2008?queries=20&vali=4&test=6&features=6"

SWEEP = """
import json, sys
from rankloop.lab.runs.sweep import run_trials
from rankloop.lab.runs.trial import Trial

trials = [Trial(name, sys.argv[1], rounds=20, evaluations=2) for name in ("pdgd", "greedy")]
told = []
run_trials(trials, sys.argv[2], on_event=lambda e: told.append([e.kind, e.trial.learner, e.reason]))
print(json.dumps([event for event in told if event[0] in ("kept", "outdated", "finished")]))
"""


def edited(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")


def names(*modules: str) -> set[str]:
    found = sources_of(modules)
    return {file.relative_to(SOURCE).as_posix() for file in found if file.is_relative_to(SOURCE)}


def letor(folder: Path) -> Path:
    write_letor(open_split(f"{TINY}&normalize=none").train, folder / "data.txt")
    return folder / "data.txt"


@pytest.mark.slow
def test_a_resumed_sweep_runs_again_what_other_code_or_other_data_computed(tmp_path: Path) -> None:
    """With a copy of the package, whose files are edited between the runs."""
    package = shutil.copytree(SOURCE, tmp_path / "rankloop", ignore=shutil.ignore_patterns("__pycache__", "page"))
    data, learner = letor(tmp_path), package / "learners" / "pairwise" / "pdgd.py"

    def resumed() -> list[list[str]]:
        found = subprocess.run(
            [sys.executable, "-c", SWEEP, str(data), str(tmp_path / "some.parquet")],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr
        told: list[list[str]] = json.loads(found.stdout)
        return told

    everything = [["finished", "pdgd", ""], ["finished", "greedy", ""]]
    assert resumed() == everything
    edited(learner, '"""', '"""To be read: ')  # words only
    edited(package / "cli" / "lab.py", "cumulative NDCG", "discounted NDCG")  # computes nothing
    assert resumed() == [["kept", "pdgd", ""], ["kept", "greedy", ""]]
    edited(learner, "    rate: float = 0.1", "    rate: float = 0.2")
    assert resumed() == [["outdated", "pdgd", "other code"], ["kept", "greedy", ""], ["finished", "pdgd", ""]]
    edited(data, "0 qid", "1 qid")
    again = [["outdated", "pdgd", "other data"], ["outdated", "greedy", "other data"]]
    assert resumed() == again + everything
    edited(data, "1 qid", "0 qid")
    edited(learner, "    rate: float = 0.2", "    rate: float = 0.1")
    assert resumed() == [["kept", "pdgd", ""], ["kept", "greedy", ""]]  # nothing was thrown away


def test_a_module_of_another_package_counts_with_what_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "others"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "learner.py").write_text(
        "from . import helper\nfrom .deep.inner import (\n    one,  # the first\n    two,\n)\nimport numpy\n"
        "from rankloop.core.rng import Rng\n"
    )
    (folder / "helper.py").write_text("import beside\n")
    (folder / "deep" / "inner.py").write_text("from ..third import x as one\ntwo = 2\n")
    (folder / "third.py").write_text("x = 1\n")
    (folder / "unused.py").write_text("")
    (tmp_path / "beside.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("others.learner")
    found = {file.name for file in sources_of(["others.learner"])}
    assert found == {"learner.py", "helper.py", "inner.py", "third.py", "beside.py", *_of("core.rng")}


def _of(module: str) -> set[str]:
    return {Path(name).name for name in names(f"rankloop.{module}")}


def test_words_do_not_count_but_long_texts_do() -> None:
    code = 'def f(x):\n    """What it does."""\n    return x\n'
    said = '"""A module."""\n\n# why\ndef f(x):\n    """Something else\n\n    entirely."""\n\n    # so\n    return x\n'
    assert code_of(code) == code_of(said)
    assert code_of(code) != code_of(code.replace("return x", "return -x"))
    query = 'QUERY = """\n# a line of it\n"""\n'
    assert code_of(query) != code_of(query.replace("# a line of it\n", ""))


def test_parameters_and_learner_change_the_key_but_rounds_do_not() -> None:
    key = provenance(Trial("pdgd")).code
    assert provenance(Trial("pdgd", "synthetic:mq2007", rounds=7, seed=3)).code == key  # those are in the run's id
    assert provenance(Trial("pdgd", params={"rate": 0.1})).code == key  # which is the default
    others = [
        Trial("pdgd", params={"rate": 0.2}),
        Trial("greedy"),
        BanditTrial("x", "bubblerank", "generated", "CM", "1"),
    ]
    assert len({key, *(provenance(trial).code for trial in others)}) == 4


def test_data_files_count_by_content(tmp_path: Path) -> None:
    file = letor(tmp_path)
    first = provenance(Trial("pdgd", str(file)))
    assert first.files
    assert provenance(Trial("pdgd", TINY)).files == ""
    other = shutil.copytree(tmp_path, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("elsewhere")) / "data.txt"
    os.utime(other, ns=(1, 1))
    assert provenance(Trial("pdgd", str(other))) == first
    edited(other, "0 qid", "1 qid")
    assert provenance(Trial("pdgd", str(other))).files != first.files
    assert provenance(Trial("pdgd", str(tmp_path))).files == "unreadable"  # a folder without train and test
    folder = tmp_path / "folds"
    for fold in (1, 2):
        for role in ("train", "test"):
            (folder / f"Fold{fold}").mkdir(parents=True, exist_ok=True)
            (folder / f"Fold{fold}" / f"{role}.txt").write_text(f"1 qid:{fold} 1:{len(role)}\n")
    assert len({provenance(Trial("pdgd", f"{folder}?fold={fold}")).files for fold in (1, 2)}) == 2


def test_a_source_that_was_edited_since_the_process_began_is_trusted_in_it_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mended_learner.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("mended_learner")
    files, keys = sources_of(["mended_learner"]), []
    for started in (time.time() - 100, time.time() - 99, time.time() + 100, time.time() + 101):
        sources._digest_of.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(sources, "_STARTED", started)
            keys.append(sources.digest_of(files))
    assert len(set(keys[:3])) == 3
    assert keys[2] == keys[3]


def test_data_that_changes_under_a_run_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    file, out = letor(tmp_path), tmp_path / "some.parquet"
    trial = Trial("greedy", str(file), rounds=20, evaluations=2)

    def meddle(event: Event) -> None:
        if event.kind == "progress" and event.rounds == 10:
            edited(file, "0 qid", "1 qid")

    with pytest.raises(RankloopError, match="its data changed while it ran"):
        run_trials([trial], out, on_event=meddle)
    assert run_trials([trial], out).num_rows == 2
