"""How often 95 % intervals hold the truth: Student, clustered one and two ways, paired, and off-policy by user."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rankloop.core.types import Array
from rankloop.evaluation import off_policy, statistics

Interval = tuple[float, float]


class Held(NamedTuple):
    """How often intervals held the truth."""

    right: float
    naive: float | None  # had each value counted for itself


class Design(NamedTuple):
    """Values with effects of rows (queries, folds, users) and columns (seeds), and how they are clustered."""

    rows: tuple[int, ...]  # how many values each row has; with columns, all have one of each
    by_row: float  # standard deviation of the rows' effects; that of the noise is 1
    columns: int = 0  # 0: values of a row have nothing to do with those of others
    by_column: float = 0.0

    def held(self, draws: int, seed: int = 0) -> Held:
        """Of `draws` samples with mean 0."""
        if self.columns:
            rows, columns = (part.ravel() for part in np.indices((len(self.rows), self.columns)))
        else:
            rows = np.repeat(np.arange(len(self.rows)), self.rows)
            columns = np.zeros(rows.size, np.int64)
        labels = (rows, columns) if self.columns else (rows,)
        right = naive = 0
        for draw in range(draws):
            rng = np.random.default_rng([seed, draw])
            values = self.by_row * rng.normal(size=len(self.rows))[rows] + rng.normal(size=rows.size)
            if self.columns:
                values += self.by_column * rng.normal(size=self.columns)[columns]
            right += _holds(statistics.clustered(values, *labels).interval(), 0.0)
            naive += _holds(statistics.mean(values).interval(), 0.0)
        return Held(right / draws, naive / draws)


def _holds(interval: Interval, truth: float) -> bool:
    return interval[0] <= truth <= interval[1]


DESIGNS = {
    "10 queries x 5 runs, no effect of the query": Design((5,) * 10, 0.0),
    "10 queries x 5 runs": Design((5,) * 10, 1.0),
    "10 queries x 5 runs, strong effect": Design((5,) * 10, 3.0),
    "10 queries of 2 to 9 values": Design((2, 3, 4, 5, 6, 7, 8, 9, 5, 6), 1.0),
    "5 folds x 4 seeds": Design((4,) * 5, 1.0),
    "10 queries x 5 seeds, crossed": Design((5,) * 10, 1.0, 5, 1.0),
    "10 queries x 5 seeds, crossed, weak seeds": Design((5,) * 10, 1.0, 5, 0.3),
    "10 queries x 3 seeds, crossed": Design((3,) * 10, 1.0, 3, 1.0),
    "5 folds x 4 seeds, crossed": Design((4,) * 5, 1.0, 4, 1.0),
    "5 folds x 4 seeds, crossed, weak seeds": Design((4,) * 5, 1.0, 4, 0.3),
}


def means(seeds: int, draws: int) -> Held:
    """Mean of one value a seed."""
    found = statistics.means(np.random.default_rng([1, seeds]).normal(size=(seeds, draws)))
    each = [statistics.Estimate(*one).interval() for one in zip(*found, strict=True)]
    return Held(sum(_holds(one, 0.0) for one in each) / draws, None)


def differences(seeds: int, draws: int) -> Held:
    """Paired difference of two learners whose runs share what their seed brings."""
    right = naive = 0
    for draw in range(draws):
        rng = np.random.default_rng([2, seeds, draw])
        shared = 3.0 * rng.normal(size=seeds)
        high, low = (dict(enumerate((shared + rng.normal(size=seeds)).tolist())) for _ in range(2))
        right += _holds(statistics.paired(high, low).interval(), 0.0)
        one, other = statistics.mean(list(high.values())), statistics.mean(list(low.values()))
        apart = statistics.Estimate(one.value - other.value, (one.error**2 + other.error**2) ** 0.5, seeds - 1.0, seeds)
        naive += _holds(apart.interval(), 0.0)
    return Held(right / draws, naive / draws)


class Log(NamedTuple):
    """A log of lists with weights and users, of which the new policy's value is known."""

    users: int
    lists: int  # a user, on average
    uneven: bool  # whether users differ in how many
    heavy: float  # standard deviation of the log weights
    by_user: float  # of users' liking

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Rewards, log weights and users. A list's feature z is N(0, 1), and N(heavy, 1) under the new policy."""
        counts = rng.geometric(1.0 / self.lists, self.users) if self.uneven else np.full(self.users, self.lists)
        user = np.repeat(np.arange(self.users), counts)
        liking = np.clip(self.by_user * rng.normal(size=self.users), -0.35, 0.35)
        z = rng.normal(size=user.size)
        rewards = rng.random(user.size) < 0.5 + liking[user] + 0.1 * np.tanh(z)
        return rewards.astype(np.float64), self.heavy * z - self.heavy**2 / 2, user

    def truth(self) -> float:
        """The mean reward under the new policy."""
        at, weight = np.polynomial.hermite_e.hermegauss(60)
        return 0.5 + 0.1 * float(weight @ np.tanh(at + self.heavy) / weight.sum())

    def held(self, draws: int, seed: int = 0) -> dict[str, Held]:
        """Of both estimates, by user and by list."""
        held = {name: [0, 0] for name in ("ips", "snips")}
        truth = self.truth()
        for draw in range(draws):
            rewards, weights, user = self.draw(np.random.default_rng([seed, draw]))
            for way, users in enumerate((user, None)):
                found = off_policy.by_ranking(rewards, weights, users=users, most=1.0)
                for name, count in held.items():
                    estimate = found[name].estimate()
                    count[way] += estimate.low <= truth <= estimate.high
        return {name: Held(right / draws, naive / draws) for name, (right, naive) in held.items()}


LOGS = {
    "30 users x 20 lists": Log(30, 20, False, 0.5, 0.2),
    "50 users, 20 lists on average": Log(50, 20, True, 0.5, 0.2),
    "50 users, 20 lists on average, heavier weights": Log(50, 20, True, 1.0, 0.2),
    "300 users, 10 lists on average": Log(300, 10, True, 0.5, 0.2),
    "300 lists, each another user's": Log(300, 1, False, 1.0, 0.0),
    "300 lists, very heavy weights": Log(300, 1, False, 2.0, 0.0),
}


def lines(draws: int) -> Iterator[tuple[str, Held]]:
    """The table, line by line."""
    for seeds in (3, 5, 10):
        yield f"mean of {seeds} seeds", means(seeds, draws)
        yield f"paired difference, {seeds} seeds", differences(seeds, draws)
    for name, design in DESIGNS.items():
        yield name, design.held(draws)
    for name, log in LOGS.items():
        for which, held in log.held(draws).items():
            yield f"off-policy {which}: {name}", held


def main() -> None:
    """Print the table."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(f"| {draws:,} draws each | holds the truth | naive |\n| --- | --- | --- |")
    for name, held in lines(draws):
        print(f"| {name} | {held.right:.1%} | {'' if held.naive is None else f'{held.naive:.1%}'} |", flush=True)


if __name__ == "__main__":
    main()
