"""BubbleRank's δ: regret and harm for n⁻⁴, n⁻² and n⁻¹ with known or counted rounds, per click model."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common import print_rows
from rankloop.clicks.bandit_models import open_models, reordered
from rankloop.core.types import Array, Candidates
from rankloop.kernels.bandits import misordered
from rankloop.kernels.click_models import CASCADE, POSITION, ClickParameters, expected_clicks
from rankloop.lab.runs.compiled import QUERY, best_clicks, play
from rankloop.learners.bandits import bubblerank

ROUNDS = 1_000_000
POWERS = (4, 2, 1)
ONE, TABLE = np.ones(1), np.ones((1, 1))


def one(
    user: ClickParameters, power: int, anytime: bool, seed: int, top: int = 5, rounds: int = ROUNDS
) -> dict[str, float]:
    """A run: its regret, harmful changes, and whether the list was spoilt."""
    m, work = user.attraction.size, np.zeros((3, user.attraction.size + 1))
    with patch.object(bubblerank, "ANYTIME", 4.0 * power):
        learner = bubblerank.BubbleRank(delta=None if anytime else float(rounds) ** -power)
        outcome = play(learner, user, [rounds], seed, top=top, most=m * m)
    learned = learner.best(Candidates(QUERY, np.arange(m)), m)
    before, after = (expected_clicks(user, base, top, work) for base in (np.arange(m), learned))
    best = best_clicks(user, m, top)
    return {
        "regret": float(outcome.regret[-1]),
        "harmful": float(outcome.harmful),
        "spoilt": float(after < before - 1e-12),
        "missed before, %": 100 * (1 - before / best),
        "missed after, %": 100 * (1 - after / best),
        "wrong before": float(misordered(user.attraction, np.arange(m))),
        "wrong after": float(misordered(user.attraction, learned)),
    }


def choices(sources: list[str], seed: int, runs: int, rounds: int = ROUNDS, best: bool = False) -> list[dict[str, Any]]:
    """A row for each δ, means over queries and runs; harmful changes and spoilt lists are sums."""
    rows = []
    for source, model, anytime, power in product(sources, ("CM", "PBM"), (False, True), POWERS):
        found = []
        for number, (query, user) in product(range(seed, seed + runs), open_models(source)[model].items()):
            rng = np.random.default_rng([number, *query.encode()])
            by_attraction = np.argsort(-user.attraction, kind="stable")
            start = reordered(user, by_attraction if best else rng.permutation(by_attraction))
            found.append(one(start, power, anytime, number, rounds=rounds))
        delta = f"{'(1 + t)' if anytime else 'n'}^-{power}"
        row: dict[str, Any] = {"models": source.rsplit("/", 1)[-1], "model": model, "delta": delta, "runs": len(found)}
        regret = np.reshape([run["regret"] for run in found], (runs, -1)).mean(axis=0)  # of each query: runs share it
        row |= {"regret": int(regret.mean()), "± s.e.": int(regret.std(ddof=1) / regret.size**0.5)}
        row |= {name: int(sum(run[name] for run in found)) for name in ("harmful", "spoilt")}
        row |= {name: float(np.mean([run[name] for run in found])) for name in list(found[0])[3:]}
        rows.append(row)
        print(".", end="", file=sys.stderr, flush=True)
    return rows


def list_with(inversions: int, rng: np.random.Generator) -> Array:
    """A list of 10 with so many pairs the wrong way round, each such list as likely as any other."""
    while True:
        code = [int(rng.integers(i + 1)) for i in range(10)]
        if sum(code) == min(inversions, 45 - inversions):
            break
    made: list[int] = []
    for i, above in enumerate(code):
        made.insert(i - above, i)
    return np.array(made if inversions <= 22 else made[::-1])


def references(seed: int, runs: int) -> list[dict[str, Any]]:
    """What is printed in the paper, and what came out of 3 runs, and of 10 where the list is drawn; times `runs`."""
    rows = []
    for i, printed in enumerate((1301, 4378, 10252, 21444, 46488), 1):
        examination = np.array([0.9] * 8 + [0.5**i] * 2).reshape(-1, 1)
        user = ClickParameters(POSITION, np.array([0.5] * 9 + [0.9]), ONE, ONE, 1.0, examination)
        row: dict[str, Any] = {"setting": f"PBM, last position .5^{i}", "paper": printed}
        for power in (4, 1):
            regret = [one(user, power, False, number, top=10)["regret"] for number in range(seed, seed + 3 * runs)]
            row[f"n^-{power}"] = int(np.mean(regret))
        rows.append(row)
    attraction = 0.55 - 0.05 * np.arange(1, 11)
    for inversions, printed in zip((0, 10, 20, 30, 40), (929, 6169, 11900, 19490, 28681), strict=True):
        row = {"setting": f"CM, {inversions} pairs wrong", "paper": printed}
        for power in (4, 1):
            rng, regret = np.random.default_rng([seed, inversions]), []
            for number in range(seed, seed + 10 * runs):
                values = attraction[list_with(inversions, rng)]
                user = ClickParameters(CASCADE, values, np.zeros(10), ONE, 1.0, TABLE)
                regret.append(one(user, power, False, number)["regret"])
            row[f"n^-{power}"] = int(np.mean(regret))
            row[f"± s.e. n^-{power}"] = int(np.std(regret, ddof=1) / len(regret) ** 0.5)
        rows.append(row)
    return rows


def main() -> None:
    """Print the tables: `bubblerank_delta [SEED RUNS [FILE.json …]]`; files are click models."""
    first, count = (int(text) for text in [*sys.argv[1:3], "0", "2"][:2]) if len(sys.argv) > 2 else (0, 2)
    print_rows(choices(["generated", *sys.argv[3:]], first, count))
    print()
    print_rows(choices(["generated?queries=100", *sys.argv[3:]], first, 5 * count, rounds=30_000, best=True))
    print()
    print_rows(references(first, count))


if __name__ == "__main__":
    main()
