"""`rankloop clicks`: fit click models to a log, score them, look at position bias."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from rankloop.cli import _out

if TYPE_CHECKING:
    from rankloop.clicks.log import SessionLog
    from rankloop.clicks.model import ClickModel, Score
    from rankloop.core.types import Array

# repeated here, and compared by a test: help must not import numpy
Model = Literal["ctr", "ctr-rank", "ctr-document", "cm", "dcm", "pbm", "ubm", "sdbn", "dbn", "ccm", "all"]
Format = Literal["clara", "yandex", "jsonl"]


def add_to(app: App) -> None:
    """Register the commands."""
    clicks = App(
        name="clicks",
        help="Fit click models to a log of result pages, score them, and look at position bias.",
    )
    for command in (fit, score, show):
        clicks.command(command)
    app.command(clicks)


def fit(
    log: Path,
    /,
    *,
    model: Model = "pbm",
    out: Path | None = None,
    test_share: float = 0.25,
    seed: int = 0,
    prior: float | None = None,
    format: Format | None = None,  # noqa: A002
    skip_bad: bool = False,
    json: bool = False,
) -> None:
    """Fit a click model to a log, and print how well it predicts sessions that it was not fitted to.

    Sessions are split into a part to fit on and a part to test on. Log-likelihood is the mean over pages, higher is
    better; perplexity is 1 for a model that is always right, 2 for a coin, lower is better.

    Example: rankloop clicks fit serps.tsv.gz --model all

    Example: rankloop clicks fit serps.tsv.gz --model ubm --out ubm.model

    Parameters
    ----------
    log
        Result pages with clicks, plain or gzip, in one of three formats. A page a line, tab-separated: session, query,
        documents and click flags with commas between them (clara). Yandex sessions, tab-separated: pages `session time
        Q query region url1 …` and clicks `session time C url` (yandex). JSON lines: {"session": …, "query": …,
        "documents": […], "clicks": [flags, or the clicked documents]} (jsonl). Pages may have different lengths.
    model
        The simplest first: click-through rates (ctr, ctr-rank, ctr-document), cascade (cm), dependent click (dcm),
        position-based (pbm), user browsing (ubm), dynamic Bayesian network without and with impatience (sdbn, dbn),
        click chain (ccm); all fits each and prints one table. docs/click-models.md says when to choose which.
    out
        Write the fitted model there, for `rankloop clicks score` and `show`, and as the lab's user `fitted:FILE`.
    test_share
        Share of the sessions to test on; 0 fits on all of them and tests nothing.
    seed
        Decides which sessions are for testing; same seed, same split.
    prior
        Strength of the prior: examinations of each query-document pair with the average attraction. Default: 5.
    format
        clara, yandex or jsonl; detected from the first line if not given.
    skip_bad
        Leave out lines that cannot be used, and count them, instead of stopping at the first.
    json
        Print JSON.
    """
    from rankloop.clicks.files import MODELS, save
    from rankloop.core.errors import InvalidParameter

    names = list(MODELS) if model == "all" else [model]
    if out is not None and model == "all":
        raise InvalidParameter("--out takes one model, but --model is all; choose the one to keep")
    if not 0 <= test_share < 1:
        raise InvalidParameter(f"test_share is {test_share}; it must be from 0 to below 1")
    made = {name: _make(name, prior) for name in names}
    pages = _read(log, format, skip_bad)
    train, test = pages.split(test_share, seed) if test_share else (pages, None)
    rows: list[dict[str, Any]] = []
    with _out.progress_bars() as bars:
        for name, fresh in made.items():
            task = bars.add_task(f"fitting {name}", total=None)
            start = perf_counter()
            fresh.fit(train, lambda done, total, task=task: bars.update(task, completed=done, total=total))  # type: ignore[misc]
            seconds = perf_counter() - start
            bars.remove_task(task)
            scores = {"train": fresh.score(train), **({"test": fresh.score(test)} if test is not None else {})}
            rows.append({"model": name, "rounds": len(fresh.trace_), "seconds": seconds, **scores})
    if out is not None:
        save(made[model], out)
        _out.people.print(f"wrote {out}")
    if json:
        report = {"log": _described(pages), "test_share": test_share, "seed": seed}
        listed = [{**row, **{part: row[part].summary() for part in ("train", "test") if part in row}} for row in rows]
        numbers = {} if model == "all" else {"numbers": made[model].describe()}
        _out.print_json({**report, "models": listed, **numbers})
        return
    _print_scores(
        f"{log.name}: {len(train):,} pages to fit, {len(test or ()):,} to test, by session, seed {seed}", rows
    )
    if model != "all":
        _print_by_rank(rows[0]["test" if test is not None else "train"])
        _print_numbers(made[model])


def score(
    model: Path,
    log: Path,
    /,
    *,
    format: Format | None = None,  # noqa: A002
    skip_bad: bool = False,
    json: bool = False,
) -> None:
    """Print how well a fitted model predicts another log: log-likelihood and perplexity, rank by rank.

    Example: rankloop clicks score ubm.model next-week.tsv.gz

    Parameters
    ----------
    model
        A file that `rankloop clicks fit --out` wrote.
    log
        Result pages with clicks: see `rankloop clicks fit`.
    format
        clara, yandex or jsonl; detected from the first line if not given.
    skip_bad
        Leave out lines that cannot be used, and count them, instead of stopping at the first.
    json
        Print JSON.
    """
    from rankloop.clicks.files import load

    fitted = load(model)
    pages = _read(log, format, skip_bad)
    found = fitted.score(pages)
    if json:
        _out.print_json({"model": fitted.name, "log": _described(pages), **found.summary()})
        return
    _print_scores(f"{model.name} on {log.name}", [{"model": fitted.name, "test": found}])
    _print_by_rank(found)


def show(
    *files: Path,
    figure: Path | None = None,
    format: Format | None = None,  # noqa: A002
    skip_bad: bool = False,
    json: bool = False,
) -> None:
    """Print position bias, how often each rank is examined: of fitted models, and of logs without any model.

    A model's curve is that of a page of average documents. A log's curve compares each query-document pair with itself
    at the different ranks where it was shown, relative to the first rank, with standard errors; it is empty where
    nothing ever moved. Several files give several curves.

    Example: rankloop clicks show serps.tsv.gz pbm.model --figure bias.png

    Parameters
    ----------
    files
        Logs, or models that `rankloop clicks fit --out` wrote.
    figure
        Draw the curves into this .png or .svg file.
    format
        Of the logs: clara, yandex or jsonl; detected from the first line if not given.
    skip_bad
        Leave out lines that cannot be used, and count them, instead of stopping at the first.
    json
        Print JSON.
    """
    from rankloop.clicks.files import load
    from rankloop.core import codec
    from rankloop.core.errors import InvalidParameter
    from rankloop.evaluation.position_bias import position_bias

    if not files:
        raise InvalidParameter("no file is named; give a log or a fitted model")
    _out.check_figure(figure)
    curves: dict[str, tuple[Array, Array | None]] = {}
    found: list[dict[str, Any]] = []
    for file in files:
        if _is_model(file, codec.MAGIC):
            fitted = load(file)
            curve = fitted.average_examination(fitted.ranks or 10)
            curves[f"{file.name} ({fitted.name})"] = (curve, None)
            found.append({"file": str(file), "model": fitted.name, "options": fitted.options(), **fitted.describe()})
            found[-1]["average examination"] = curve.tolist()
            if not json:
                _print_numbers(fitted)
        else:
            pages = _read(file, format, skip_bad)
            bias = position_bias(pages)
            curves[file.name] = (bias.examination, bias.error)
            found.append({"file": str(file), "log": _described(pages), "position bias": bias.summary()})
            if not json:
                _print_log(file.name, pages)
    if figure is not None:
        from rankloop.lab.plots import figures

        figures.save_as(figures.position_curves(curves), figure)
        _out.people.print(f"wrote {figure}")
    if json:
        _out.print_json(found)
    else:
        _print_curves(curves)


# -- reading and printing ------------------------------------------------------------------------------------------


def _make(name: str, prior: float | None) -> ClickModel:
    from dataclasses import fields

    from rankloop.clicks.files import model_named

    kind = model_named(name)
    takes = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**({"prior": prior} if prior is not None and "prior" in takes else {}))


def _read(path: Path, format: str | None, skip_bad: bool) -> SessionLog:  # noqa: A002
    from rankloop.clicks.readers import read_log

    _out.say_when_compiling()
    with _out.progress_bars() as bars:
        task = bars.add_task(f"reading {path.name}", total=None)

        def on_progress(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        log = read_log(path, format, skip_bad=skip_bad, on_progress=on_progress)
    _out.people.print(str(log.report), markup=False, highlight=False, soft_wrap=True)
    return log


def _is_model(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _described(log: SessionLog) -> dict[str, Any]:
    assert log.report is not None  # it was read from a file
    found = {name: value for name, value in vars(log.report).items() if name not in ("skipped", "noticed")}
    for kind in ("skipped", "noticed"):
        met = getattr(log.report, kind)
        found[kind] = {what: {"count": one.count, "lines": list(one.lines)} for what, one in met.items()}
    sizes = {"queries": len(log.pairs.queries), "pairs": len(log.pairs), "clicks": int(log.clicks.sum())}
    return {**found, **sizes, "sessions": len(set(log.sessions.tolist())), "click rates": log.click_rates().tolist()}


def _print_scores(title: str, rows: list[dict[str, Any]]) -> None:
    parts = [part for part in ("train", "test") if part in rows[0]]
    columns = ["model"]
    for part in parts:
        name = f"{part} " if len(parts) > 1 else ""
        columns += [f"{name}log-likelihood", f"{name}perplexity", f"{name}given clicks above"]
    columns += ["impossible pages", "never seen"]
    timed = "seconds" in rows[0]
    lines = []
    for row in rows:
        last: Score = row[parts[-1]]
        cells = [row["model"]]
        for part in parts:
            one: Score = row[part]
            cells += [f"{one.log_likelihood:.4f}", f"{one.perplexity:.4f}", f"{one.conditional_perplexity:.4f}"]
        cells += [f"{last.impossible:,}", f"{last.unseen:.1%}"]
        lines.append(cells + ([f"{row['rounds']}", f"{row['seconds']:.2f}"] if timed else []))
    _out.print_table(title, columns + (["rounds", "seconds"] if timed else []), lines)


def _print_by_rank(found: Score) -> None:
    rows = [
        [str(r + 1), f"{found.perplexity_by_rank[r]:.4f}", f"{found.conditional_perplexity_by_rank[r]:.4f}"]
        for r in range(len(found.perplexity_by_rank))
    ]
    _out.print_table("perplexity by rank", ["rank", "perplexity", "given clicks above"], rows)


def _print_numbers(model: ClickModel) -> None:
    rows = []
    for name, value in model.describe().items():
        if isinstance(value, dict):
            rows.append([name, "  ".join(f"{key} {number:.3f}" for key, number in value.items())])
        elif isinstance(value, list) and isinstance(value[0], list):
            lines = [" ".join(f"{number:.2f}" for number in line[: r + 1]) for r, line in enumerate(value)]
            rows.append([f"{name} (row: rank; column: rank of the last click, first: none)", "\n".join(lines)])
        elif isinstance(value, list):
            rows.append([name, " ".join(f"{number:.3f}" for number in value)])
        else:
            rows.append([name, f"{value:,}"])
    _out.print_table(f"{model.name}: {model.title}", ["what", "fitted"], rows, numbers_from=2)


def _print_log(name: str, log: SessionLog) -> None:
    rows = [
        [str(r + 1), f"{shows:,}", f"{rate:.4f}"]
        for r, (shows, rate) in enumerate(zip(log.shows().tolist(), log.click_rates().tolist(), strict=True))
    ]
    _out.print_table(name, ["rank", "pages", "click-through rate"], rows)


def _print_curves(curves: dict[str, tuple[Array, Array | None]]) -> None:
    longest = max(len(curve) for curve, _ in curves.values())
    rows = []
    for r in range(longest):
        cells = [str(r + 1)]
        for curve, error in curves.values():
            spread = f" ± {error[r]:.3f}" if error is not None and r < len(curve) else ""
            cells.append(f"{curve[r]:.3f}{spread}" if r < len(curve) else "")
        rows.append(cells)
    _out.print_table("examination", ["rank", *curves], rows)
