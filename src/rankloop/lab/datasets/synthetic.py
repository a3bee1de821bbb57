"""Generated data sets in the shape of well-known ones.

A document has ten hidden factors; features are noisy mixtures of them, grades come from a function of them and noise.
Query q of a part depends on the seed and q only, and all parts share one truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels.scaling import minmax_queries
from rankloop.lab.datasets.dataset import Dataset, Split

SIZES = ("varied", "fixed")
INTERACTIONS = {"nonlinear": 0.5, "strong": 0.85}  # relevance -> share of the noise that they take
RELEVANCES = ("linear", *INTERACTIONS)
FACTORS = 10
_BLOCK = 20  # queries generated together, from one random stream
_CUT_DOCUMENTS = 100_000  # sampled to find where grades begin


class Shape(NamedTuple):
    """What makes a set look like the real one."""

    queries: tuple[int, int, int]  # train, vali, test; a quick sample of the real set's
    docs: int  # mean documents per query
    sizes: tuple[float, ...]  # documents per query at min/10/25/50/75/90/max %, relative to the mean
    features: int
    constant: int  # of them, the same everywhere
    per_query: int  # of them, the same for all documents of a query
    grades: tuple[float, ...]  # frequencies of 0, 1, …
    offset: float  # share of the relevance's variance that is the query's: decides how many have no relevant document
    signal: float  # share of the rest that the factors explain
    named_page: bool = False  # relevance counts from the query's best document down: each query has one at least


_WEB = (0.1, 0.4, 0.62, 0.9, 1.25, 1.7, 6.0)
SHAPES = {
    "mslr": Shape((1000, 200, 200), 120, _WEB, 136, 0, 5, (0.52, 0.32, 0.135, 0.018, 0.007), 0.2, 0.19),
    "yahoo": Shape((1000, 200, 200), 24, _WEB, 700, 181, 0, (0.26, 0.36, 0.28, 0.08, 0.02), 0.3, 0.26),
    "mq2007": Shape((600, 200, 200), 41, _WEB, 46, 5, 0, (0.74, 0.21, 0.05), 0.2, 0.18),
    "mq2008": Shape((470, 157, 157), 19, (5, 8, 8, 8, 24, 55, 121), 46, 6, 0, (0.78, 0.155, 0.065), 0.3, 0.3),
    "np2003": Shape((90, 30, 30), 1000, (0.97, 1, 1, 1, 1, 1, 1.02), 64, 5, 0, (0.9989, 0.0011), 0.0, 0.95, True),
}
_AT = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # where `sizes` are given


class Truth(NamedTuple):
    """What all parts of a generated set share."""

    loadings: Array  # (FACTORS, d) unit columns; zero columns are features that tell nothing
    noise: Array  # (d,) share of a feature's standard deviation that is its own
    floor: Array  # (d,) below it a feature is 0
    tail: Array  # (d,) strength of the lognormal tail; 0 for most
    per_query: Array  # (d,) flags: one value a query
    constant: Array  # (d,) flags: one value everywhere
    weights: Array  # (FACTORS,) of the relevance, of length 1
    cuts: Array  # (highest grade,) where the relevance passes to the next grade


def generate(
    name: str,
    *,
    queries: tuple[int, ...],
    docs: int,
    sizes: str = "varied",
    features: int,
    seed: int = 0,
    relevance: str = "linear",
    normalize: str = "query-minmax",
) -> Split:
    """A set of the shape `name`, of any size; `rankloop.lab.datasets.sources.open_split` has defaults for the rest."""
    shape = SHAPES[name]
    streams = Rng(seed)
    world = _World(shape, docs, sizes, relevance, _truth(shape, features, streams.for_event("synthetic/truth", 0)))
    world = world._replace(truth=world.truth._replace(cuts=_cuts(world, streams)))
    parts = []
    for role, count in zip(("train", "vali", "test"), queries, strict=True):
        rows, grades, offsets = _part(world, streams, f"synthetic/{role}", count)
        if normalize == "query-minmax":
            minmax_queries(rows, offsets)
        ids = np.array([f"{role}-{q}" for q in range(count)])
        parts.append(Dataset(f"{name}/{role}", rows, grades, offsets, ids, normalize, scale=len(shape.grades) - 1))
    return Split(*parts)


class _World(NamedTuple):
    shape: Shape
    docs: int
    sizes: str
    relevance: str
    truth: Truth


def _truth(shape: Shape, features: int, rng: np.random.Generator) -> Truth:
    spectrum = 0.65 ** np.arange(FACTORS)  # a few factors carry most features
    main = rng.choice(FACTORS, features, p=spectrum / spectrum.sum())
    loadings = rng.normal(size=(FACTORS, features)) * 0.2 * np.sqrt(spectrum)[:, None]
    loadings[main, np.arange(features)] += 1.0
    loadings /= np.linalg.norm(loadings, axis=0)
    sparse = rng.permutation(features) <= features / 2
    zeros = np.where(sparse, rng.uniform(0.6, 0.85, features), rng.uniform(0.0, 0.6, features))
    kind = rng.permutation(features) * shape.features // features  # as many of a kind in proportion, at any width
    weights = rng.choice([-1.0, 1.0], FACTORS) * 0.5 ** np.arange(FACTORS)
    return Truth(
        loadings,
        noise=rng.uniform(0.0, 0.2, features),
        floor=ndtri(zeros),
        tail=np.where(rng.random(features) < 0.15, rng.uniform(0.5, 1.0, features), 0.0),
        per_query=kind >= shape.features - shape.per_query,
        constant=kind < shape.constant,
        weights=weights / np.linalg.norm(weights),
        cuts=np.empty(0),
    )


def _cuts(world: _World, streams: Rng) -> Array:
    """Grade bounds from a sample of the relevance; not from a part, whose size must not move them."""
    sample = []
    for block in range(max(_CUT_DOCUMENTS // (world.docs * _BLOCK), 2)):
        rng = streams.for_event("synthetic/cuts", block)
        offsets = _offsets(world, rng)
        sample.append(_relevance(world, _factors(offsets, rng), offsets, rng))
    cuts: Array = np.quantile(np.concatenate(sample), np.cumsum(world.shape.grades)[:-1])
    return cuts


def _part(world: _World, streams: Rng, purpose: str, count: int) -> tuple[Array, Array, Array]:
    """Features, grades and offsets of `count` queries."""
    blocks = range(-(-count // _BLOCK))
    lengths = np.concatenate([np.diff(_offsets(world, streams.for_event(purpose, block))) for block in blocks])
    begins = np.concatenate([[0], np.cumsum(lengths)])  # of whole blocks: the last is made whole, then cut
    rows = np.empty((begins[-1], world.truth.floor.size))
    grades = np.empty(len(rows), np.int64)
    for block in blocks:
        rng = streams.for_event(purpose, block)
        offsets = _offsets(world, rng)
        factors = _factors(offsets, rng)
        here = slice(begins[block * _BLOCK], begins[(block + 1) * _BLOCK])
        grades[here] = np.searchsorted(world.truth.cuts, _relevance(world, factors, offsets, rng), side="right")
        _fill_features(rows[here], world.truth, factors, offsets, rng)
    end = begins[count]
    return rows[:end], grades[:end], begins[: count + 1]


def _offsets(world: _World, rng: np.random.Generator) -> Array:
    """(_BLOCK + 1,) where each query's documents begin."""
    uniform = rng.random(_BLOCK)
    table = np.array(world.shape.sizes)
    middle = (table[1:] + table[:-1]) / 2 @ np.diff(_AT)  # the table's own mean
    relative = np.interp(uniform, _AT, table / middle) if world.sizes == "varied" else np.ones(_BLOCK)
    return np.concatenate([[0], np.cumsum(np.maximum(np.rint(relative * world.docs), 1))]).astype(np.int64)


def _factors(offsets: Array, rng: np.random.Generator) -> Array:
    return rng.normal(size=(offsets[-1], FACTORS))


def _relevance(world: _World, factors: Array, offsets: Array, rng: np.random.Generator) -> Array:
    """(N,) hidden relevance, of variance 1."""
    shape, lengths = world.shape, np.diff(offsets)
    own = np.sqrt(shape.signal) * (factors @ world.truth.weights)
    noise = 1 - shape.signal
    if world.relevance != "linear":  # a share of what would be noise follows from the factors, but not linearly
        share = INTERACTIONS[world.relevance]
        for k in (0, 2):  # a pair of factors counts when both are high or both low; each alone tells nothing
            own += np.sqrt(share * noise / 2) * np.sign(factors[:, k] * factors[:, k + 1])
        noise *= 1 - share
    own += np.sqrt(noise) * rng.normal(size=len(own))
    of_query = np.repeat(rng.normal(size=_BLOCK), lengths)
    relevance: Array = np.sqrt(1 - shape.offset) * own + np.sqrt(shape.offset) * of_query
    if shape.named_page:
        relevance -= np.repeat(np.maximum.reduceat(relevance, offsets[:-1]), lengths)
    return relevance


def _fill_features(rows: Array, truth: Truth, factors: Array, offsets: Array, rng: np.random.Generator) -> None:
    """Features (N, d), before normalization, into `rows`."""
    rng.random(out=rows)  # uniform noise: as good here, and much of the time goes into drawing it
    rows -= 0.5
    rows *= np.sqrt(12) * truth.noise
    rows += factors @ (truth.loadings * np.sqrt(1 - truth.noise**2))
    of_query = rng.normal(size=(_BLOCK, int(truth.per_query.sum())))
    rows[:, truth.per_query] = np.repeat(of_query, np.diff(offsets), axis=0)
    rows -= truth.floor
    np.maximum(rows, 0.0, out=rows)
    heavy = np.flatnonzero(truth.tail)
    rows[:, heavy] = np.expm1(truth.tail[heavy] * rows[:, heavy])
    rows[:, truth.constant] = 0.0
