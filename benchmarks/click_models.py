"""Click models: rates of readers, simulated users and fits; with CLARA2, prediction and agreement with grades."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.stats import kendalltau, spearmanr

from rankloop.clicks import MODELS, Pairs, SessionLog
from rankloop.clicks.files import read_published
from rankloop.clicks.readers import read_log
from rankloop.core.types import Array
from rankloop.evaluation.position_bias import position_bias
from rankloop.kernels.click_fits import react_pages

SHARED = Path(os.environ.get("RANKLOOP_SHARED", Path(__file__).parents[2] / "shared" / "data"))
CLARA2 = SHARED / "clara2"
YANDEX = SHARED / "yandex-click-models" / "queries10.json"
GRADES = (2, 3, 4, 5)
LOOKS = 10  # attraction is little known below


def run() -> list[dict[str, Any]]:
    """One row a thing that takes time."""
    return [
        *_readers(),
        *_users(),
        *_fits("simulated", _simulated()),
        *(_fits("clara2", clara2()) if CLARA2.is_dir() else []),
    ]


def clara2() -> SessionLog:
    """The whole log."""
    return read_log(CLARA2 / "serps.tsv.gz")


def _readers(pages: int = 30_000) -> Iterable[dict[str, Any]]:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        texts: dict[str, list[str]] = {"clara": [], "yandex": [], "jsonl": []}
        for i in range(pages):
            shown, clicks = rng.integers(0, 50_000, 10).astype(str).tolist(), (rng.random(10) < 0.03).astype(int)
            query, flags = int(rng.integers(2000)), clicks.tolist()
            texts["clara"].append(f"{i}\t{query}\t{','.join(shown)}\t{','.join(map(str, flags))}")
            texts["yandex"].append("\t".join([str(i), "0", "Q", str(query), "1", *shown]))
            texts["yandex"] += [f"{i}\t9\tC\t{shown[r]}" for r in np.flatnonzero(clicks)]
            texts["jsonl"].append(json.dumps({"session": i, "query": query, "documents": shown, "clicks": flags}))
        for form, lines in texts.items():
            content = ("\n".join(lines) + "\n").encode()
            for packed in (False, True):
                path = Path(folder, "log")
                path.write_bytes(gzip.compress(content, 6) if packed else content)
                seconds = _best(lambda path=path: read_log(path))  # type: ignore[misc]
                yield {
                    "what": f"read {form}{', gzip' if packed else ''}, {pages:,} pages",
                    "seconds": seconds,
                    "rate": f"{len(content) / 1e6 / seconds:.1f} MB/s",
                }


def _users(pages: int = 200_000) -> Iterable[dict[str, Any]]:
    if not YANDEX.exists():
        return
    shown = np.tile(np.arange(10), (pages, 1))
    coins, clicks, lengths = np.random.default_rng(0).random((pages, 2, 10)), np.zeros((pages, 10)), np.full(pages, 10)
    for name, queries in read_published(YANDEX).items():
        query, model = next(iter(queries.items()))
        user = model.parameters_of(query, [str(i) for i in range(10)])
        react_pages(user, shown[:1], lengths[:1], coins[:1], clicks[:1])
        seconds = _best(lambda user=user: react_pages(user, shown, lengths, coins, clicks))  # type: ignore[misc]
        yield {
            "what": f"simulate {name}, 10 documents, random numbers given",
            "seconds": seconds,
            "rate": f"{seconds / pages * 1e9:.0f} ns/page",
        }


def _fits(source: str, log: SessionLog) -> Iterable[dict[str, Any]]:
    for name, kind in MODELS.items():
        model = kind().fit(log)
        seconds = _best(lambda kind=kind: kind().fit(log))  # type: ignore[misc]
        rounds = f", {len(model.trace_)} rounds" if len(model.trace_) else ""
        rate = f"{len(log) * max(1, len(model.trace_)) / seconds / 1e6:.2f} million pages/s and round"
        yield {"what": f"fit {name}, {source}, {len(log):,} pages{rounds}", "seconds": seconds, "rate": rate}


def _simulated(pages: int = 100_000) -> SessionLog:
    """Pages of 10 of 20 documents, 100 queries, clicks of position-based users."""
    rng = np.random.default_rng(0)
    names = [(str(q), str(d)) for q in range(100) for d in range(20)]
    pairs = Pairs.of([query for query, _ in names], [document for _, document in names])
    shown = np.argsort(rng.random((pages, 20)), axis=1)[:, :10] + 20 * rng.integers(100, size=(pages, 1))
    empty = np.zeros(shown.shape, dtype=np.uint8)
    log = SessionLog(pairs, shown, empty, np.full(pages, 10), np.arange(pages), np.arange(pages).astype(str))
    true = MODELS["pbm"]().given(
        pairs, attraction_=rng.uniform(0.02, 0.4, len(pairs)), examination_=1 / np.arange(1.0, 11.0)
    )
    return true.simulate(log, rng)


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


# -- the tables of docs/click-models.md ----------------------------------------------------------------------------


def foresight(log: SessionLog) -> list[dict[str, Any]]:
    """A row a model: fitted to three quarters of the sessions, tested on the others."""
    train, test = log.split(0.25, seed=0)
    made = [kind() for kind in MODELS.values()]
    made[5:5] = [MODELS["dcm"](exact=False)]  # type: ignore[call-arg]
    made[9:9] = [MODELS["sdbn"](exact=False)]  # type: ignore[call-arg]
    rows = []
    for model in made:
        start = perf_counter()
        model.fit(train)
        seconds = perf_counter() - start
        fitted, foreseen = model.score(train), model.score(test)
        rows.append(
            {
                "model": model.name + (", closed form" if model.options().get("exact") is False else ""),
                "train log-likelihood": f"{fitted.log_likelihood:.4f}",
                "train perplexity": f"{fitted.perplexity:.4f}",
                "test log-likelihood": f"{foreseen.log_likelihood:.4f}",
                "test perplexity": f"{foreseen.perplexity:.4f}",
                "given clicks above": f"{foreseen.conditional_perplexity:.4f}",
                "impossible pages": foreseen.impossible,
                "rounds": len(model.trace_),
                "seconds": f"{seconds:.2f}",
            }
        )
    return rows


def grades(log: SessionLog) -> list[dict[str, Any]]:
    """A row a model: mean attraction by published grade, and rank correlations, among pairs looked at often enough."""
    with gzip.open(CLARA2 / "relevance.tsv.gz", "rt") as file:
        next(file)
        published = {tuple(line.split("\t")[:2]): int(line.split("\t")[2]) for line in file}
    queries, documents = log.pairs.names()
    grade = np.array([published.get(pair, 0) for pair in zip(queries.tolist(), documents.tolist(), strict=True)])
    looks = np.bincount(log.shown.ravel(), np.tile(position_bias(log).examination, len(log)), len(grade))
    often = (looks >= LOOKS) & (grade > 0)
    rows = []
    for name, kind in MODELS.items():
        if "attraction_" not in kind.learned:
            continue
        attraction: Array = kind().fit(log).attraction_[:-1]  # type: ignore[attr-defined]
        means = {f"grade {g}": f"{attraction[often & (grade == g)].mean():.3f}" for g in GRADES}
        tau, rho = kendalltau(attraction[often], grade[often]), spearmanr(attraction[often], grade[often])
        everywhere = kendalltau(attraction[grade > 0], grade[grade > 0])
        rows.append(
            {
                "model": name,
                **means,
                "Kendall": f"{tau.statistic:.3f}",
                "Spearman": f"{rho.statistic:.3f}",
                "Kendall, all pairs": f"{everywhere.statistic:.3f}",
            }
        )
    counts = {f"grade {g}": int((often & (grade == g)).sum()) for g in GRADES}
    return [*rows, {"model": f"pairs with {LOOKS} looks", **counts}]


def main() -> None:
    """All tables."""
    from benchmarks.common import machine, print_rows

    print(f"Machine: {machine()}\n\n{__doc__}")
    print_rows(run())
    if CLARA2.is_dir():
        log = clara2()
        for table in (foresight, grades):
            print(f"\n## {table.__name__}\n\n{table.__doc__}\n")
            print_rows(table(log))


if __name__ == "__main__":
    main()
