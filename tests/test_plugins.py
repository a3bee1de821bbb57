"""A package with one learner, one user and one world of its own: compared in two processes, saved, loaded, served."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankloop
from rankloop.core import plugins, registry
from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.lab.runs.trial import Trial, run
from tests.service.app_fixtures import Service, items, names, refused

ROOT = Path(__file__).parents[1]
SOURCE = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rankloop import Candidates, Feedback
from rankloop.lab.worlds.world import Round
from rankloop.core.learner import (
    checked_order, checked_values, load_state, make_impression, resolve_k, rows_of, state_of
)


@dataclass
class Mine:
    """Counts the features of what was clicked.

    Parameters
    ----------
    rate
        What a click counts.

    Examples
    --------
    >>> Mine(rate=2.0).rate
    2.0
    """

    rate: float = 1.0
    feedback: ClassVar[str] = "clicks"
    contextual: ClassVar[bool] = True

    def __post_init__(self):
        self.theta_ = np.zeros(0)

    def rank(self, candidates, k, rng):
        return make_impression(candidates, self.best(candidates, k))

    def adopt(self, candidates, order):
        rows_of(candidates, self.theta_.size)
        return make_impression(candidates, checked_order(candidates, order))

    def best(self, candidates, k):
        rows = rows_of(candidates, self.theta_.size)
        scores = rows @ self.theta_ if self.theta_.size else np.zeros(len(rows))
        return np.argsort(-scores, kind="stable")[: resolve_k(candidates, k)]

    def learn(self, impression, feedback, rng):
        clicks = checked_values(self, impression, feedback)
        rows = rows_of(impression, self.theta_.size)
        before = self.theta_ if self.theta_.size else np.zeros(rows.shape[1])
        self.theta_ = before + self.rate * clicks @ (rows - rows.mean(0))

    def state(self):
        return state_of(self)

    def load(self, state):
        load_state(self, state, {"theta_": ("d",)})


@dataclass
class Picky:
    """Clicks the best grade only."""

    highest_grade: int
    patience: int = 10

    def react(self, grades, rng):
        seen = np.asarray(grades[: self.patience])
        return Feedback.clicks((seen == max(seen.max(), 1)).astype(float))


@dataclass
class Reversed:
    """Users who like what others do not."""

    dataset: object
    k: int = 10
    seed: int = 0
    share: float = 1.0

    def _turned(self, grades):
        return self.dataset.highest_grade - np.asarray(grades)

    def at(self, t, rng):
        q = int(rng.random() * len(self.dataset))
        grades = self._turned(self.dataset.grades_of(q))
        gains = np.sort(2.0**grades - 1)[::-1][: self.k]
        return Round(self.dataset.candidates(q), grades, float((gains / np.log2(np.arange(2, gains.size + 2))).sum()))

    def grades(self, dataset, t):
        return self._turned(dataset.grades)
'''
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "rankloop-mine"
version = "1.0"

[project.entry-points."rankloop.learners"]
mine = "rankloop_mine.parts:Mine"

[project.entry-points."rankloop.users"]
picky = "rankloop_mine.parts:Picky"

[project.entry-points."rankloop.worlds"]
reversed = "rankloop_mine.parts:Reversed"
"""
PARTS, CLASSES = "rankloop_mine.parts", ("Mine", "Picky", "Reversed")
DATA = "synthetic:mq2008?queries=20&vali=1&test=10"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package installed into it, by pip and without a network."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("mine")
    source = folder / "source" / "rankloop_mine"
    source.mkdir(parents=True)
    (source / "__init__.py").touch()
    (source / "parts.py").write_text(SOURCE)
    (folder / "source" / "pyproject.toml").write_text(PROJECT)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--target", str(folder / "site"), str(folder / "source")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture
def mine(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package on the path of this process and of those that it starts."""
    monkeypatch.syspath_prepend(str(package))
    path = os.pathsep.join([str(package), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] in ("rankloop_mine", "loose")]:
        del sys.modules[name]


def ask(*arguments: str) -> str:
    """What the command says, in a process of its own."""
    command = [sys.executable, "-c", "from rankloop.cli import main; main()", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("own", [("mine", "picky", "reversed"), [f"{PARTS}:{name}" for name in CLASSES]])
@pytest.mark.slow
def test_an_own_learner_user_and_world_in_two_processes(own: Sequence[str]) -> None:
    """Compared by the command in two worker processes: the very numbers that this process finds."""
    learner, user, world = own
    told = ask(
        *("compare", f"{learner}?rate=0.5", learner, "--data", DATA, "--user", f"{user}?patience=8", "--world", world),
        *("--rounds", "30", "--seeds", "1", "--processes", "2", "--json"),
    )
    trial = Trial(learner, DATA, f"{user}?patience=8", {"rate": 0.5}, 30, seed=0, world=world)
    expected = run(trial)
    assert expected.last("online.ndcg") > 0
    found = json.loads(told)
    assert f"{learner}(rate=0.5)" in told
    assert any(abs(number - expected.last("online.cndcg")) < 1e-3 for number in numbers(found)), told


def numbers(found: Any) -> list[float]:
    """All numbers in what JSON says."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        return [number for part in found for number in numbers(part)]
    return [float(found)] if isinstance(found, int | float) else []


def trained(name: str) -> Any:
    made, rng = registry.make(name, rate=0.5), np.random.default_rng(0)
    for i in range(5):
        shown = made.rank(rankloop.Candidates(f"q{i}", features=rng.random((4, 3))), 3, rng)
        made.learn(shown, rankloop.Feedback.clicks([0, 1, 0]), rng)
    return made


def test_saved_and_loaded(mine: Path, tmp_path: Path) -> None:
    """By the name that its package gave it; where that is not installed, the error names the package."""
    made = trained("rankloop_mine.parts:Mine")
    assert registry.name_of(made) == "mine"
    rankloop.save(made, tmp_path / "mine.rl")
    again: Any = rankloop.load(tmp_path / "mine.rl")
    assert rankloop.dumps(again) == rankloop.dumps(made)
    assert (again.rate, again.theta_.tolist()) == (0.5, made.theta_.tolist())
    sys.path.remove(str(mine))
    with pytest.raises(
        UnknownName, match=r"holds learner 'mine', which is not installed here: pip install rankloop-mine"
    ):
        rankloop.load(tmp_path / "mine.rl")


def test_a_file_imports_nothing_by_itself(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`my.module:Mine` in a file is loaded only where the module is imported, or somebody has allowed it."""
    shutil.copy(mine / "rankloop_mine" / "parts.py", tmp_path / "loose.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = trained("loose:Mine")
    data = rankloop.dumps(made)
    assert registry.name_of(made) == "loose:Mine"
    assert rankloop.dumps(rankloop.loads(data)) == data  # imported already
    del sys.modules["loose"]
    with pytest.raises(UnknownName, match="learner 'loose:Mine' is not imported, and to import it is to run it"):
        rankloop.loads(data)
    assert "loose" not in sys.modules
    assert rankloop.dumps(rankloop.loads(data, allow=["loose:Mine"])) == data
    del sys.modules["loose"]
    monkeypatch.setenv(plugins.ALLOW, "other:Thing, loose:Mine")
    assert rankloop.dumps(rankloop.loads(data)) == data


def test_what_is_no_learner_is_never_called() -> None:
    """A module that is imported holds more than learners."""
    for name, words in [
        ("os:system", "not a dataclass"),
        ("rankloop.core.types:Impression", "not a dataclass"),
        ("rankloop.lab.runs.trial:Trial", "has no feedback, contextual, rank"),
        ("os:sistem", "has no 'sistem'"),
        ("no.such:Module", "there is no module 'no'"),
    ]:
        with pytest.raises((InvalidParameter, UnknownName), match=words):
            registry.make(name)


@pytest.mark.parametrize("name", ["mine", "rankloop_mine.parts:Mine"])
@pytest.mark.usefixtures("mine")
def test_served(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP, learning, and going on after a restart; a request imports nothing that nobody allowed."""
    spec = {"learner": name, "parameters": {"rate": 0.5}, "features": names(3), "k": 4, "timeout_ms": 60_000}
    with Service(tmp_path / "store.db") as service:
        service.ready()
        if name != "mine":
            refused(service.http.put("/v1/rankers/shop", json=spec), 422, "is not imported")
            refused(service.http.put("/v1/rankers/shop", json={**spec, "learner": "os:system"}), 422, "not a dataclass")
            assert "rankloop_mine.parts" not in sys.modules
            monkeypatch.setenv(plugins.ALLOW, name)
        service.put("shop", **spec, exposure="full")
        for t in range(4):
            answer = service.rank("shop", items(7, 3, seed=t))
            assert not answer["fallback"]
            assert service.report(answer, [answer["items"][1]["id"]]) == "accepted"
        assert service.settle("shop") == 4
        state = service.state("shop")
    with Service(tmp_path / "store.db") as service:
        service.ready()
        assert service.snapshot("shop") == service.state("shop") == state
        assert service.status("shop")["learned_impressions"] == 4
