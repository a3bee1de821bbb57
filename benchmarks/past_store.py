"""A store with millions of closed impressions, written straight into its tables as a service would."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np

from rankloop.core import codec
from rankloop.core.types import Array, Impression
from rankloop.service.control.rankers import complete
from rankloop.service.ranking import model as models
from rankloop.service.storage import open_database, rankers, schema
from rankloop.wire.rankers import Spec

K, D = 5, 5  # items a list, all candidates shown; features
QUERIES = 1000
STEEPNESS = 0.8  # examination of rank r is r^-.8
PER_DAY = 500_000  # lists: ten million are twenty days
BEGAN = 1_790_000_000 // 86_400 * 86_400  # in 2026
PORTION = 50_000
ALPHABET = np.frombuffer(b"0123456789abcdefghjkmnpqrstvwxyz", np.uint8)


def looked(k: int) -> Array:
    """(k,) how often users look at each rank."""
    return np.arange(1.0, k + 1.0) ** -STEEPNESS


class Traffic:
    """Lists that a fixed policy draws, and what position-based users click."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        rng = np.random.default_rng(7)
        self.features = np.round(rng.random((QUERIES, K, D)), 2)
        self.liking = self.features @ rng.normal(size=D)
        self.attraction = 1.0 / (1.0 + np.exp(0.5 - 1.2 * (self.liking - self.liking.mean()) / self.liking.std()))
        self.scores = 0.5 * self.liking + 0.3 * rng.normal(size=self.liking.shape)

    def draw(self, n: int) -> tuple[Array, Array, Array, Array]:
        """(n,) queries, (n, K) orders, (n,) their log-probabilities, (n, K) clicks."""
        rng = self._rng
        query = rng.integers(0, QUERIES, n)
        scores = self.scores[query]
        order = np.argsort(-(scores + rng.gumbel(size=scores.shape)), axis=1)
        ranked = np.take_along_axis(scores, order, 1)
        left = np.logaddexp.accumulate(ranked[:, ::-1], axis=1)[:, ::-1]
        clicks = rng.random((n, K)) < looked(K) * np.take_along_axis(self.attraction[query], order, 1)
        return query, order, (ranked - left).sum(axis=1), clicks

    def bodies(self, query: Array, order: Array, told: Array) -> list[bytes]:
        """The lists as `codec.dump_impression` writes them: one is written by it, the others after its pattern."""
        n, at = len(query), query[:, None]
        memo = {
            "scores": np.zeros(K),
            "rest": np.array([-np.inf]),
            "log_propensity": np.zeros(1),
            "candidates": np.array([K]),
        }
        rest, many = np.full((n, 1), -np.inf), np.full((n, 1), K)
        rows, scores = self.features[at, order].reshape(n, -1), self.scores[at, order]
        arrays = (order, order, rows, scores, rest, told[:, None], many)
        payload = np.concatenate([np.ascontiguousarray(one).view(np.uint8).reshape(n, -1) for one in arrays], axis=1)
        whole, size = payload.tobytes(), payload.shape[1]
        heads = {}
        for q in range(QUERIES):
            pattern = codec.dump_impression(Impression(f"q{q}", np.arange(K), np.arange(K), np.zeros((K, D)), memo))
            length = struct.unpack_from("<8sII", pattern)[2]
            heads[q] = pattern[: 16 + length]
        found = []
        for i, q in enumerate(query.tolist()):
            body = heads[q] + whole[i * size : (i + 1) * size]
            found.append(body + blake2b(body, digest_size=16).digest())
        return found


def ids(rng: np.random.Generator, created: Array) -> list[str]:
    """As `log.new_id` makes them: time first, then chance."""
    milliseconds = (created * 1000).astype(np.int64)
    stamp = ALPHABET[(milliseconds[:, None] >> np.arange(45, -1, -5)) & 31]
    chance = ALPHABET[rng.integers(0, 32, (len(created), 16))]
    text = np.concatenate([stamp, chance], axis=1).tobytes().decode()
    return [text[i * 26 : i * 26 + 26] for i in range(len(created))]


def rows(lists: int, users: int, seed: int = 0) -> Iterator[tuple[list[Any], list[Any]]]:
    """Rows of impressions and of outcomes, in portions."""
    traffic, rng = Traffic(seed), np.random.default_rng([seed, 1])
    patterns = {bits: str([float(bits >> p & 1) for p in range(K)]).replace(" ", "").encode() for bits in range(2**K)}
    shown = [str(order).replace(" ", "").encode() for order in np.ndindex(*[K] * K) if len(set(order)) == K]
    texts = {one: one.replace(b"(", b"[").replace(b")", b"]") for one in shown}
    for first in range(0, lists, PORTION):
        n = min(PORTION, lists - first)
        query, order, told, clicks = traffic.draw(n)
        seq = np.arange(first, first + n)
        created = BEGAN + seq * (86_400 / PER_DAY)
        names, bodies = ids(rng, created), traffic.bodies(query, order, told)
        person = rng.integers(0, users, n).tolist() if users else [None] * n
        seen = [patterns[bits] for bits in (clicks @ (1 << np.arange(K))).tolist()]
        impressions, outcomes = [], []
        for i, (name, at) in enumerate(zip(names, created.tolist(), strict=True)):
            who = None if person[i] is None else f"user-{person[i]}"
            slots = texts[str(tuple(order[i].tolist())).replace(" ", "").encode()]
            impressions.append((name, first + i, at, at + 1800, who, bodies[i], slots, seen[i], first + i))
            outcomes.append((first + i, name, seen[i], at + 60.0))
        yield impressions, outcomes


def fill(url: str, lists: int, users: int = 0) -> None:
    """Write a store of one ranker, `shop`, with so many settled lists, of so many users (0: nobody is known)."""
    database = open_database(url)
    schema.migrate(database)
    spec = complete(Spec(learner="pdgd", features=[f"f{j}" for j in range(D)], k=K, exposure="full"))
    connection = database.connect(time_limits=False)
    with connection.transaction():
        rankers.add_ranker(connection, "shop", spec, models.fresh_state(spec), time.time())
    epoch = database.read(lambda c: rankers.get_ranker(c, "shop")).epoch  # type: ignore[union-attr]
    impression = (
        "INSERT INTO impressions (id, ranker, epoch, number, created, closes, person, digest, learn, body, answer, "
        f"shown, feedback, open, seq) VALUES (?, 'shop', {epoch}, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, 0, ?)"
    )
    outcome = (
        "INSERT INTO outcomes (ranker, seq, impression_id, kind, learn, feedback, created) "
        "VALUES ('shop', ?, ?, 'final', 1, ?, ?)"
    )
    for impressions, outcomes in rows(lists, users):
        with connection.transaction(durable=False):
            connection.many(impression, [(*one[:5], b"", one[5], b"{}", *one[6:]) for one in impressions])
            connection.many(outcome, outcomes)
            sql = "UPDATE log_offsets SET next_seq = next_seq + ?, next_number = next_number + ? WHERE ranker = 'shop'"
            connection.run(sql, len(outcomes), len(outcomes))
        database.maintain()
    connection.close()
    database.close()
