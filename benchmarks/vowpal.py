"""Vowpal Wabbit's conditional contextual bandit as a learner of the lab, and what a ranking costs it.

rankloop compare hybrid benchmarks.vowpal:VowpalWabbit --data … (needs the package vowpalwabbit)
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.common import machine, print_rows
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import (
    Learner,
    checked_order,
    checked_values,
    make_impression,
    require_choice,
    require_number,
    resolve_k,
    rows_of,
)
from rankloop.core.registry import make
from rankloop.core.rng import as_rng
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression

EXPLORATIONS = ("epsilon", "squarecb", "softmax", "bag")


@dataclass
class VowpalWabbit:
    """`vw --ccb_explore_adf`, fed over its text format.

    Parameters
    ----------
    exploration
        How a position is drawn: "epsilon" (a random item with chance `amount`), "squarecb" (`--gamma_scale` amount),
        "softmax" (`--lambda` amount), "bag" (so many policies).
    amount
        See there.
    rate
        Vowpal Wabbit's `--learning_rate`.
    kind
        Its `--cb_type`: "mtr" or "ips".
    base
        Whether the caller's order is a feature, -log(1 + position): without it a fresh one knows nothing of production.
    """

    exploration: str = "epsilon"
    amount: float = 0.1
    rate: float = 0.5
    kind: str = "mtr"
    base: bool = True

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_choice("exploration", self.exploration, EXPLORATIONS)
        require_choice("kind", self.kind, ("mtr", "ips"))
        require_number("amount", self.amount, 0)
        require_number("rate", self.rate, 0, above=True)
        self._model = b""
        self._live: Any = None  # opened when it is first needed: a learner that is only described needs none
        self._greedy: Any = None  # the same without exploration, as of the last time somebody asked

    def _options(self) -> str:
        flag = {"epsilon": "--epsilon", "squarecb": "--squarecb --gamma_scale", "bag": "--bag"}.get(self.exploration)
        amount = str(int(self.amount)) if self.exploration == "bag" else f"{self.amount:g}"
        drawn = f"--softmax --lambda {amount}" if flag is None else f"{flag} {amount}"
        return f"--ccb_explore_adf {drawn} --cb_type {self.kind} --learning_rate {self.rate:g}"

    def _vw(self) -> Any:
        if self._live is None:
            self._live = _opened(self._options(), self._model, "--save_resume")
        return self._live

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """Position by position, as Vowpal Wabbit draws them."""
        seed = int(as_rng(rng).integers(2**31))
        tagged = [
            f"ccb slot 'seed={seed}{i} |" for i in range(resolve_k(candidates, k))
        ]  # else it counts on for itself
        slots = self._vw().predict(self._lines(candidates, tagged))
        order = np.array([slot[0][0] for slot in slots], dtype=np.int64)
        chances = np.array([slot[0][1] for slot in slots])
        return make_impression(candidates, order, {"chances": chances, **self._all(candidates)})

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told; somebody else chose, for certain."""
        told = checked_order(candidates, order)
        return make_impression(candidates, told, {"chances": np.ones(len(told)), **self._all(candidates)})

    def best(self, candidates: Candidates, k: int) -> Array:
        """What it would show without exploring."""
        if self._greedy is None:
            self._greedy = _opened("", _saved(self._vw()), "-t", self._quiet())
        slots = self._greedy.predict(self._lines(candidates, ["ccb slot |"] * resolve_k(candidates, k)))
        return np.array([max(slot, key=lambda one: one[1])[0] for slot in slots], dtype=np.int64)

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """A click is worth one, at every position."""
        clicks = checked_values(self, impression, feedback) > 0
        chances, memo = impression.memo["chances"], impression.memo
        told = zip(impression.order.tolist(), clicks.tolist(), chances.tolist(), strict=True)
        slots = [f"ccb slot {item}:{-int(click)}:{chance:.9g} |" for item, click, chance in told]
        self._vw().learn([*_texts(memo["all_rows"]), *slots])
        self._greedy = None

    def state(self) -> dict[str, Array]:
        """The model as Vowpal Wabbit saves it to go on with."""
        return {"model_": np.frombuffer(_saved(self._vw()), dtype=np.uint8).copy()}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        if sorted(state) != ["model_"]:
            raise InvalidInput(f"state has {sorted(state)}, but {type(self).__name__} learns ['model_']")
        self._model, self._live, self._greedy = np.asarray(state["model_"], np.uint8).tobytes(), None, None

    def _quiet(self) -> str:
        return {"epsilon": "--epsilon 0", "softmax": "--lambda 1000000"}.get(self.exploration, "")

    def _rows(self, candidates: Candidates) -> Array:
        return rows_of(candidates, 0, base=self.base)

    def _lines(self, candidates: Candidates, slots: list[str]) -> list[str]:
        return [*_texts(self._rows(candidates)), *slots]

    def _all(self, candidates: Candidates) -> dict[str, Array]:
        """It learns from the whole set that it chose from, not from what was shown alone."""
        return {"all_rows": self._rows(candidates)}


def _texts(rows: Array) -> list[str]:
    """A set of candidates in Vowpal Wabbit's words."""
    said = [" ".join([f"{j}:{value:.9g}" for j, value in enumerate(row) if value]) for row in rows.tolist()]
    return ["ccb shared |", *(f"ccb action |f {row}" for row in said)]


def _opened(options: str, model: bytes, *more: str) -> Any:
    from vowpalwabbit import Workspace

    if not model:
        return Workspace(" ".join([options, *more, "--quiet"]))
    with tempfile.NamedTemporaryFile(suffix=".vw") as file:
        file.write(model)
        file.flush()
        return Workspace(" ".join(["-i", file.name, *more, "--quiet"]))


def _saved(workspace: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.vw"
        workspace.save(str(path))
        return path.read_bytes()


def cost(learner: Learner, candidates: int, features: int, lists: int = 300) -> tuple[float, float]:
    """Milliseconds of a core that it takes to rank a list, ten of it shown, and to learn from a click on it."""
    rng, spent = np.random.default_rng(0), np.zeros(2)
    for at in range(-50, lists):  # the first ones compile, and are not counted
        made = Candidates(f"q{at % 50}", np.arange(candidates), rng.random((candidates, features)))
        began = time.process_time()
        shown = learner.rank(made, 10, rng)
        ranked = time.process_time()
        learner.learn(shown, Feedback.clicked(shown, [shown.items[at % 3]]), rng)
        spent += (at >= 0) * np.array([ranked - began, time.process_time() - ranked])
    ranking, learning = (spent / lists * 1e3).tolist()
    return ranking, learning


def main() -> None:
    """What a list costs, beside rankloop's own: `python -m benchmarks vowpal`."""
    made: dict[str, Callable[[], Learner]] = {
        "hybrid?init=base": lambda: make("hybrid", init="base"),
        "squarecb": lambda: make("squarecb"),
        "Vowpal Wabbit, squarecb": lambda: VowpalWabbit("squarecb", 100.0, 0.1),
    }
    rows = []
    for size in ((20, 20), (100, 136)):
        for name, learner in made.items():
            ranking, learning = cost(learner(), *size)
            told = {"rank, ms of a core": f"{ranking:.3f}", "learn": f"{learning:.3f}"}
            rows.append({"candidates x features": f"{size[0]} x {size[1]}", "learner": name, **told})
    print(f"Machine: {machine()}\n")
    print_rows(rows)


if __name__ == "__main__":
    main()
