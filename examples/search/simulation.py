"""Simulated people who search Python and click, with tastes that the engine does not know, decided by a seed."""

from __future__ import annotations

import re
from math import log1p

import numpy as np

from examples.search.app import CANDIDATES, SHOWN, Search
from examples.search.index import split
from rankloop.clicks.users import DependentClickUser
from rankloop.core.errors import InvalidInput
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.evaluation.metrics import ndcg

ASKED, HELD_OUT = 200, 60  # queries that people type, some often; and those that nobody types, to judge by
GRADES = (4, 4, 3, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1)  # of the candidates liked most; the others get 0
KINDS = {"function": 0.3, "class": 0.3, "module": 0.2, "method": 0.0}
# How people read a list: click and stop probability by grade; the stop coin falls at every item they look at.
HABITS = (
    DependentClickUser((0.02, 0.08, 0.25, 0.6, 0.9), (0.3, 0.3, 0.35, 0.5, 0.7), False),  # in a hurry
    DependentClickUser((0.05, 0.15, 0.35, 0.6, 0.8), (0.1, 0.1, 0.12, 0.15, 0.2), False),  # looking around
)
DESCRIBED = "SELECT e.name, docs.summary FROM entries e JOIN docs ON docs.rowid = e.id WHERE docs.summary != ''"
LENGTH = "SELECT length(body) + length(summary) FROM docs JOIN entries e ON e.id = docs.rowid WHERE e.name = ?"


class People:
    """Everyone who comes, one after the other; `seed` decides who they are, what they like and what they type."""

    def __init__(self, search: Search, seed: int) -> None:
        self.search, self.visits = search, 0
        self._streams = Rng(seed)
        self._judged: dict[str, dict[str, int]] = {}
        rng = self._streams.for_event("search/people", 0)
        self._weights = {name: weight * rng.uniform(0.5, 1.5) for name, weight in TASTE.items()}
        queries = self._queries(rng)
        self.asked, self.held_out = queries[:ASKED], queries[ASKED:]
        often = 1.0 / (1.0 + np.arange(len(self.asked))) ** 0.8
        self._often = often / often.sum()

    def visit(self) -> float:
        """Someone searches, looks, clicks; how good the list was for these people (NDCG)."""
        rng = self._streams.for_event("search/visit", self.visits)
        self.visits += 1
        query = self.asked[int(rng.choice(len(self.asked), p=self._often))]
        found = self.search.find(query)
        shown = [item["name"] for item in found["learned"]]
        grades = self._grades(query)
        habit = HABITS[int(rng.integers(len(HABITS)))]
        clicks = habit.react(np.array([grades.get(name, 0) for name in shown], np.int64), rng).values
        if found.get("impression") is not None:
            clicked = [name for name, click in zip(shown, clicks, strict=True) if click]
            self.search.client.click(found["impression"], clicked)  # the visit is over: learn now
        return self._quality(query, shown)

    def quality(self) -> tuple[float, float]:
        """NDCG of the engine's own order and of the learned one, on queries that nobody ever typed.

        As they would be shown, trials of the unknown included; only lists mixed for the comparison are asked for anew.
        """
        values = []
        for query in self.held_out:
            found = self.search.find(query)
            while found.get("mixed"):
                found = self.search.find(query)
            values.append(
                [self._quality(query, [item["name"] for item in found[side]]) for side in ("engine", "learned")]
            )
        engine, learned = np.mean(values, axis=0).tolist()
        return engine, learned

    def summary(self) -> str:
        """How good the lists are by now, and what the comparison by clicks says."""
        engine, learned = self.quality()
        trial = self.search.state()["trial"]
        low, high = trial.interval
        said = f"{trial.verdict} ({trial.preference or 0.0:+.2f}, {low:+.2f} to {high:+.2f}, {trial.lists} mixed lists)"
        return f"NDCG on queries never typed: engine {engine:.3f}, learned {learned:.3f}; clicks say: {said}"

    def _queries(self, rng: np.random.Generator) -> list[str]:
        """Words of names and summaries, for which there is something to choose from."""
        described = sorted(self.search.index.ask(DESCRIBED))
        found: dict[str, None] = {}
        for place in rng.permutation(len(described)):
            name, summary = described[place]
            words = split(name.rpartition(".")[2]).lower().split()[:2]
            others = [word for word in re.findall(r"[a-z]{4,}", summary.lower()) if word not in words]
            if others and rng.random() < 0.6:
                words.append(others[int(rng.integers(len(others)))])
            query = " ".join(words)
            if len(self.search.index.search(query, CANDIDATES)) == CANDIDATES:
                found[query] = None
            if len(found) == ASKED + HELD_OUT:
                return list(found)
        raise InvalidInput(
            f"only {len(found)} queries of {ASKED + HELD_OUT} have {CANDIDATES} results: simulated people need more to "
            "search; give more folders with --path, or none for all that is installed"
        )

    def _grades(self, query: str) -> dict[str, int]:
        """What everyone thinks of the candidates of a query."""
        if query not in self._judged:
            hits = self.search.index.search(query, CANDIDATES)
            liked = {hit[0]: self._liked(query, *hit[:3]) for hit in hits}
            order = sorted(liked, key=lambda name: (-liked[name], name))
            self._judged[query] = dict(zip(order, (*GRADES, *[0] * CANDIDATES), strict=False))
        return self._judged[query]

    def _liked(self, query: str, name: str, kind: str, summary: str) -> float:
        (length,) = self.search.index.ask(LENGTH, name)[0]
        words, own = query.split(), set(split(f"{name} {summary}").lower().split())
        most = max(self.search.index.imported_by.values(), default=1)
        known: dict[str, float] = {
            "answers": sum(word in own for word in words) / len(words),
            "documented": min(1.0, log1p(length) / log1p(1000)),
            "public": 0.0 if "._" in f".{name}" else 1.0,
            "shallow": 1.0 - name.count(".") / 6,
            "imported": log1p(self.search.index.imported_by.get(name.partition(".")[0], 0)) / log1p(most),
            "kind": KINDS[kind],
        }
        return sum(self._weights[what] * value for what, value in known.items())

    def _quality(self, query: str, shown: list[str]) -> float:
        grades = self._grades(query)
        values: Array = np.array(list(grades.values()), float)
        return ndcg(np.array([grades.get(name, 0) for name in shown], float), SHOWN, values)


TASTE = {"answers": 1.0, "documented": 1.0, "public": 0.8, "shallow": 0.8, "imported": 1.0, "kind": 1.0}
