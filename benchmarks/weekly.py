"""LightGBM's lambdarank retrained every so many impressions on the clicks so far, alone and below a rankloop learner.

rankloop compare pdgd benchmarks.weekly:Weekly "benchmarks.weekly:Pair?spec=pdgd" --world "stationary?base=feature"
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import lightgbm
import numpy as np

from rankloop.clicks.log import Page, SessionLog
from rankloop.core.errors import InvalidInput
from rankloop.core.learner import (
    Learner,
    checked_order,
    checked_values,
    make_impression,
    require_choice,
    require_number,
    require_whole,
    resolve_k,
    rows_of,
)
from rankloop.core.registry import make, parse_learner
from rankloop.core.types import Array, Candidates, Feedback, FeedbackKind, Impression
from rankloop.evaluation.position_bias import position_bias

LABELS = ("raw", "examined", "debiased")
LEAST_PROPENSITY = 0.05  # no click counts for more than twenty, or a single one low down would decide a model


class Shown(NamedTuple):
    """A list as the log keeps it."""

    query: str
    items: Array  # (k,)
    features: Array  # (k, d)
    clicks: Array  # (k,) 0 or 1


@dataclass
class Weekly:
    """LightGBM lambdarank, trained anew every `every` lists on all of them; in between it serves its list as it is.

    Parameters
    ----------
    labels
        What a training list is. "raw": all that was shown, clicks are relevant. "examined": only down to the first
        document below the last click; what lies further down was perhaps not seen. "debiased": each click against all
        that was shown and not clicked, weighed by one over the chance that its rank is looked at.
    every
        Lists between two trainings.
    window
        Train on so many lists, the last ones; 0: on all.
    eta
        For "debiased": rank i is looked at with chance i^-eta. 0: estimated from the log each time, by the documents
        that stood at several ranks (`rankloop.evaluation.position_bias`).
    trees, leaves, rate, least
        LightGBM's num_iterations, num_leaves, learning_rate and min_data_in_leaf. The defaults are the best of six
        settings on validation queries (websearch300 and mq2007, navigational users, 3,000 lists, seeds 0 and 1), lists
        shown and held-out taken together: more leaves remember more and know less of other queries.
    fraction
        LightGBM's feature_fraction.
    folds
        With 2 or more, as many models, each trained without a share of the queries, told by a hash of their name: a
        query is scored by the model that has not seen it. 1: one model for all, what teams do. A model knows the clicks
        of the queries it was trained on, so that its scores there say nothing of how far to trust it elsewhere; who
        learns from these scores needs others.
    """

    labels: str = "raw"
    every: int = 1000
    window: int = 0
    eta: float = 0.0
    trees: int = 100
    leaves: int = 31
    rate: float = 0.05
    least: int = 50
    fraction: float = 1.0
    folds: int = 1

    feedback: ClassVar[FeedbackKind] = "clicks"
    contextual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_choice("labels", self.labels, LABELS)
        for name, lowest in (("every", 1), ("window", 0), ("trees", 1), ("leaves", 2), ("least", 1), ("folds", 1)):
            require_whole(name, getattr(self, name), lowest)
        require_number("eta", self.eta, 0)
        require_number("rate", self.rate, 0, above=True)
        require_number("fraction", self.fraction, 0, above=True)
        self._log: list[Shown] = []
        self._models: list[str] = []  # one a fold, as texts; none before the first training
        self._boosters: list[Any] = []
        self._scores: dict[str, tuple[Array, Array]] = {}  # of the queries since the last training: features and scores

    # -- ranking --------------------------------------------------------------------------------------------------

    def score(self, candidates: Candidates) -> Array:
        """(n,) in [0, 1]: the model's, from its lowest to its highest; before there is one, what the base order says.

        Of the base order that is 1 - log(place) / log(n): neighbors far down differ less than those at the top.
        """
        n, rows = candidates.n, rows_of(candidates, 0)
        if not self._boosters:
            place: Array = np.log(np.arange(1, n + 1)) / np.log(max(n, 2))
            return 1.0 - place
        known = self._scores.get(candidates.query)
        if known is not None and known[0] is rows:  # the very same candidates: trees take longer than all the rest
            return known[1]
        raw: Array = self._boosters[self._fold(candidates.query)].predict(rows, num_threads=1)
        low, high = raw.min(), raw.max()
        scaled: Array = (raw - low) / (high - low) if high > low else np.zeros(n)
        self._scores[candidates.query] = (rows, scaled)
        return scaled

    def order(self, candidates: Candidates) -> Array:
        """(n,) positions, best first; what the trees have equal stays as it came."""
        return np.argsort(-self.score(candidates), kind="stable")

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:  # noqa: ARG002
        """The best list: teams that retrain do not explore."""
        return make_impression(candidates, self.best(candidates, k))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told."""
        return make_impression(candidates, checked_order(candidates, order))

    def best(self, candidates: Candidates, k: int) -> Array:
        """The k highest scores."""
        return self.order(candidates)[: resolve_k(candidates, k)]

    # -- learning -------------------------------------------------------------------------------------------------

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:  # noqa: ARG002
        """Into the log; and every so often a new model."""
        values = checked_values(self, impression, feedback)
        clicks = (values > 0).astype(np.float64)
        self._log.append(Shown(impression.query, impression.items, rows_of(impression, 0), clicks))
        if len(self._log) % self.every == 0:
            log = self._log[-self.window :] if self.window else self._log
            chance = self._propensities(log) if self.labels == "debiased" else np.ones(0)
            folds = [[shown for shown in log if self._fold(shown.query) != fold] for fold in range(self.folds)]
            groups = [self._groups(part, chance) for part in (folds if self.folds > 1 else [log])]
            if all(groups):  # else nobody has preferred anything to anything yet
                self._use([self._trained(part) for part in groups])

    def _fold(self, query: str) -> int:
        """The fold that a query belongs to."""
        return zlib.crc32(query.encode()) % self.folds

    def _trained(self, groups: list[tuple[Array, Array, float]]) -> str:
        """A model of lists, as its text."""
        data = lightgbm.Dataset(
            np.concatenate([rows for rows, _, _ in groups]),
            np.concatenate([clicks for _, clicks, _ in groups]),
            group=[len(clicks) for _, clicks, _ in groups],
            weight=np.repeat([weight for _, _, weight in groups], [len(clicks) for _, clicks, _ in groups]),
            free_raw_data=True,
        )
        text: str = lightgbm.train(self._settings(), data, num_boost_round=self.trees).model_to_string()
        return text

    def _settings(self) -> dict[str, Any]:
        return {
            "objective": "lambdarank",
            "label_gain": [0, 1],
            "num_leaves": self.leaves,
            "learning_rate": self.rate,
            "min_data_in_leaf": self.least,
            "feature_fraction": self.fraction,
            "num_threads": 1,  # with these four, the same clicks give the same trees
            "deterministic": True,
            "force_row_wise": True,
            "seed": 1,
            "verbosity": -1,
        }

    def _groups(self, log: list[Shown], chance: Array) -> list[tuple[Array, Array, float]]:
        """Rows, labels and weight of what is trained on; lists in which all were clicked or none tell nothing."""
        telling = [shown for shown in log if 0 < shown.clicks.sum() < len(shown.clicks)]
        if self.labels == "debiased":
            return [
                (np.concatenate([shown.features[[c]], shown.features[shown.clicks == 0]]), _first(shown), 1 / chance[c])
                for shown in telling
                for c in np.flatnonzero(shown.clicks)
            ]
        groups = []
        for shown in telling:
            last = int(np.flatnonzero(shown.clicks)[-1])
            end = last + 2 if self.labels == "examined" else len(shown.clicks)
            if not shown.clicks[:end].all():
                groups.append((shown.features[:end], shown.clicks[:end], 1.0))
        return groups

    def _propensities(self, log: list[Shown]) -> Array:
        """(K,) how likely each rank is to be looked at, relative to the first."""
        ranks = max(len(shown.clicks) for shown in log)
        if self.eta:
            chance: Array = np.arange(1, ranks + 1) ** -self.eta
        else:
            pages = [Page("", shown.query, shown.items, shown.clicks.astype(np.int64)) for shown in log]
            found = position_bias(SessionLog.from_pages(pages)).examination
            known = np.isfinite(found) & (found > 0)
            # A rank that the log says nothing of is like the next one above it that it does; and none is looked at
            # more often than those above it, which only luck would say.
            nearest = np.maximum.accumulate(np.where(known, np.arange(ranks), 0))
            chance = np.minimum.accumulate(found[nearest])
        return np.maximum(chance, LEAST_PROPENSITY)

    def _use(self, models: list[str]) -> None:
        """Serve models as their texts have them, so that what was saved and loaded gives the same bits."""
        self._models, self._scores = models, {}
        self._boosters = [lightgbm.Booster(model_str=model) for model in models]

    # -- state ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        """The log, which grows, and the models' texts."""
        log = self._log
        return {
            "queries_": np.array([shown.query for shown in log], dtype=np.str_),
            "lengths_": np.array([len(shown.clicks) for shown in log], dtype=np.int64),
            "items_": np.concatenate([shown.items for shown in log]) if log else np.zeros(0, np.int64),
            "features_": np.concatenate([shown.features for shown in log]) if log else np.zeros((0, 0)),
            "clicks_": np.concatenate([shown.clicks for shown in log]) if log else np.zeros(0),
            "model_": np.frombuffer("\0".join(self._models).encode(), dtype=np.uint8).copy(),
        }

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        names = ["clicks_", "features_", "items_", "lengths_", "model_", "queries_"]
        if sorted(state) != names:
            raise InvalidInput(f"state has {sorted(state)}, but {type(self).__name__} learns {names}")
        ends = np.cumsum(state["lengths_"])[:-1]
        parts = (np.split(np.array(state[name]), ends) for name in ("items_", "features_", "clicks_"))
        log = zip(state["queries_"].tolist(), *parts, strict=True) if len(state["lengths_"]) else ()
        self._log = [Shown(*fields) for fields in log]
        text = np.asarray(state["model_"], dtype=np.uint8).tobytes().decode()
        self._use(text.split("\0") if text else [])


def _first(shown: Shown) -> Array:
    """Labels of one click before all that was not clicked."""
    return np.append(1.0, np.zeros(int((shown.clicks == 0).sum())))


@dataclass
class Pair(Weekly):
    """rankloop on top of the trees: their order is the base order, their score one feature more.

    Before there are trees the base order is production's, and the score is 0 for all.

    Parameters
    ----------
    spec
        The learner on top, as `pairrank` or `pairrank?alpha=0.1;prior=3`: with a semicolon between its parameters,
        since `&` stands between those of the pair.

    The others are those of `Weekly`, which learns from the lists that the pair has shown. Two folds by default: with
    scores of a model that knows the query's own clicks the learner on top came to trust it too much, and new queries
    fared worse than without trees (validation, mq2007, three seeds, navigational and perfect users, held-out NDCG@10:
    .493 and .484 with one fold, .519 and .515 with two, .511 and .511 without trees).
    """

    spec: str = "pairrank"
    folds: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        name, parameters = parse_learner(self.spec.replace(";", "&"))
        self._top: Learner = make(name, **parameters)
        if self._top.feedback != "clicks":
            raise InvalidInput(f"spec is {self.spec!r}, which learns from {self._top.feedback}; a pair needs clicks")

    def rank(self, candidates: Candidates, k: int, rng: np.random.Generator | int) -> Impression:
        """What the learner on top shows, of candidates in the order of the trees."""
        order, above, score = self._above(candidates)
        return _below(candidates, order, score, self._top.rank(above, k, rng))

    def adopt(self, candidates: Candidates, order: Array) -> Impression:
        """The list as told."""
        told = checked_order(candidates, order)
        ours, above, score = self._above(candidates)
        return _below(candidates, ours, score, self._top.adopt(above, np.argsort(ours)[told]))

    def best(self, candidates: Candidates, k: int) -> Array:
        """What the learner on top believes."""
        order, above, _ = self._above(candidates)
        found: Array = order[self._top.best(above, k)]
        return found

    def learn(self, impression: Impression, feedback: Feedback, rng: np.random.Generator | int) -> None:
        """Both, the trees after: the learner on top is told of the list as the trees before had it."""
        memo = dict(impression.memo)
        order, score = memo.pop("pair_order"), memo.pop("pair_score")
        rows = np.column_stack([rows_of(impression, 0), score])
        self._top.learn(Impression(impression.query, order, impression.items, rows, memo), feedback, rng)
        super().learn(impression, feedback, rng)

    def state(self) -> dict[str, Array]:
        """That of the trees, and that of the learner on top."""
        return {**super().state(), **{f"top_{name}": value for name, value in self._top.state().items()}}

    def load(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        self._top.load({name.removeprefix("top_"): value for name, value in state.items() if name.startswith("top_")})
        super().load({name: value for name, value in state.items() if not name.startswith("top_")})

    def _above(self, candidates: Candidates) -> tuple[Array, Candidates, Array]:
        """The order of the trees, the candidates as the learner on top gets them, and the scores in that order."""
        score = self.score(candidates) if self._boosters else np.zeros(candidates.n)
        order = np.argsort(-score, kind="stable")
        rows = np.column_stack([rows_of(candidates, 0)[order], score[order]])
        return order, Candidates.without_copy(candidates.query, candidates.items[order], rows), score[order]


def _below(candidates: Candidates, order: Array, score: Array, shown: Impression) -> Impression:
    """The impression in the caller's positions and features; what the learner on top needs goes into the memo."""
    memo = {**shown.memo, "pair_order": shown.order, "pair_score": score[shown.order]}
    return make_impression(candidates, order[shown.order], memo)


def main() -> None:
    """Print the tables of docs/weekly.md."""
    from benchmarks import weekly_table

    weekly_table.print_tables(sys.argv[1:])


if __name__ == "__main__":
    main()
