"""The rule of sparse rows: a learner takes them as it takes the same rows as a table, or says that it does not."""

from __future__ import annotations

import numpy as np

from rankloop.checks.rules import rule
from rankloop.checks.world import WIDTH, Factory, everything, same_state, some_feedback, taught
from rankloop.core import codec
from rankloop.core.capabilities import takes_sparse
from rankloop.core.errors import InvalidInput
from rankloop.core.types import Candidates, SparseRows


def _candidates(seed: int) -> tuple[Candidates, Candidates]:
    """The same twelve items, sparse and as a table."""
    rng = np.random.default_rng(seed)
    table = rng.random((12, WIDTH)) * (rng.random((12, WIDTH)) < 0.5)
    at = np.nonzero(table)
    rows = SparseRows(np.concatenate(([0], np.cumsum(np.bincount(at[0], minlength=12)))), at[1], table[at], WIDTH)
    return Candidates("q", features=rows), Candidates("q", features=table)


@rule
def sparse_rows_are_taken_or_refused(factory: Factory) -> None:
    """Sparse rows teach the same, bit for bit, as the same rows in a table; or they are refused by that word. The
    learner says beforehand which (`telling.takes_sparse`); one that ranks by ids alone need not."""
    one, other = taught(factory), taught(factory)
    for t in range(6):
        (given, table), before = _candidates(t), everything(one)
        try:
            ranked, message = one.rank(given, 5, np.random.default_rng(t)), None
        except InvalidInput as error:
            message = str(error)
        if message is not None:
            assert not takes_sparse(one), "the learner says that it takes sparse rows, and refuses them"
            assert "sparse" in message, f"the message {message!r} does not say that the rows are sparse"
            assert everything(one) == before, "sparse rows that were refused changed the learner"
            return
        assert takes_sparse(one) or not one.contextual, "sparse rows are taken, and the learner does not say so"
        assert isinstance(ranked.features, SparseRows), "the impression of sparse rows has others"
        assert (ranked.features.dense() == table.features[ranked.order]).all(), "features are not the rows shown"
        assert everything(one) == before, "ranking sparse rows changed the learner"
        same = other.rank(table, 5, np.random.default_rng(t))
        assert (ranked.order == same.order).all(), "another list than for the same rows as a table"
        assert (one.best(given, 5) == other.best(table, 5)).all(), "another best list than for the same rows as a table"
        if t % 2:
            ranked, same = one.adopt(given, ranked.order), other.adopt(table, same.order)
        shown, feedback = codec.load_impression(codec.dump_impression(ranked)), some_feedback(one, ranked, t)
        one.learn(shown, feedback, np.random.default_rng(t))
        other.learn(same, feedback, np.random.default_rng(t))
    assert same_state(one, other), "sparse rows taught something else than the same rows as a table"
