"""All models on a real log: NAVER's CLARA2."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

from rankloop.clicks import MODELS, SessionLog
from rankloop.clicks.readers import REPEATED, read_log
from rankloop.evaluation.position_bias import position_bias

SHARED = Path(os.environ.get("RANKLOOP_SHARED", Path(__file__).parents[3] / "shared" / "data"))
CLARA2 = SHARED / "clara2"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CLARA2.is_dir(), reason=f"no data in {CLARA2}; RANKLOOP_SHARED sets the folder"),
]


@pytest.fixture(scope="module")
def log() -> SessionLog:
    return read_log(CLARA2 / "serps.tsv.gz")


def test_everything_is_read(log: SessionLog) -> None:
    assert (len(log), len(log.pairs.queries), int(log.clicks.sum()), log.ranks) == (31_564, 1_951, 9_328, 10)
    assert log.report is not None
    assert log.report.skipped == {}
    assert {kind: found.count for kind, found in log.report.noticed.items()} == {REPEATED: 90}


def test_models_foresee_sessions_that_they_have_not_seen(log: SessionLog) -> None:
    """UBM first; those who know impatience before those who do not; the rates of ranks or documents alone last."""
    train, test = log.split(0.25, seed=0)
    found = {name: kind().fit(train).score(test) for name, kind in MODELS.items()}
    likelihood = {name: score.log_likelihood for name, score in found.items()}
    ordered = sorted(likelihood, key=likelihood.__getitem__, reverse=True)
    assert ordered[0] == "ubm"
    assert set(ordered[:4]) == {"ubm", "dbn", "ccm", "pbm"}
    assert likelihood["ubm"] == pytest.approx(-0.993, abs=0.002)
    assert likelihood["pbm"] == pytest.approx(-1.003, abs=0.002)
    assert likelihood["ctr-rank"] == pytest.approx(-1.084, abs=0.002)
    assert found["ubm"].perplexity == pytest.approx(1.113, abs=0.001)
    assert found["ctr"].perplexity == pytest.approx(1.157, abs=0.001)
    assert found["cm"].impossible == int((test.clicks.sum(axis=1) > 1).sum())
    assert all(score.unseen == pytest.approx(0.131, abs=0.001) for score in found.values())


def test_attraction_follows_the_grades(log: SessionLog) -> None:
    """Among pairs that were looked at ten times, the better the grade, the higher the mean attraction."""
    with gzip.open(CLARA2 / "relevance.tsv.gz", "rt") as file:
        next(file)
        rows = [line.rstrip("\n").split("\t") for line in file]
    grades = {(query, document): int(grade) for query, document, grade in rows}
    queries, documents = log.pairs.names()
    graded = np.array([grades.get(pair, -1) for pair in zip(queries.tolist(), documents.tolist(), strict=True)])
    looks = np.bincount(log.shown.ravel(), np.tile(position_bias(log).examination, len(log)), len(graded))
    often = (looks >= 10) & (graded > 0)
    assert often.sum() == 2_252
    for name in ("pbm", "dbn"):
        model: Any = MODELS[name]().fit(log)
        attraction = model.attraction_[:-1]
        means = [attraction[often & (graded == grade)].mean() for grade in (2, 3, 4, 5)]
        assert means == sorted(means)
        assert kendalltau(attraction[often], graded[often]).statistic > 0.15


def test_position_bias_without_a_model_falls_with_the_rank(log: SessionLog) -> None:
    found = position_bias(log)
    assert found.pairs == 1_464
    assert (np.diff(found.examination[:4]) < -2 * found.error[1:4]).all()
    assert 0.05 < found.examination[9] < 0.2
