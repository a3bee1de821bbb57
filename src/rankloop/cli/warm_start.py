"""`rankloop warm-start`: learn from logged impressions before the first request."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from cyclopts import App

from rankloop.cli import _out
from rankloop.cli._store import Json, Store, needs_extra, readable, settings, split_names
from rankloop.core.errors import InvalidParameter

NAMED = 20  # malformed lines that are told one by one


def add_to(app: App) -> None:
    """Register the command."""
    app.command(warm_start)


def warm_start(
    *words: str,
    store: Store = None,
    learner: str | None = None,
    out: Path | None = None,
    features: str | None = None,
    normalization: Literal["query-minmax", "stream", "none"] = "query-minmax",
    seed: int = 0,
    format: Literal["jsonl", "tsv", "parquet", "ltrlog", "solr", "ubi"] | None = None,  # noqa: A002
    clicks: list[Path] | None = None,
    actions: str = "click",
    ids: Literal["text", "integer"] = "text",
    strict: bool = False,
    json: Json = False,
) -> None:
    """Learn from logged impressions and clicks before the first request.

    `rankloop warm-start RANKER LOG…` adds the impressions to the log of a ranker, from where they are learned like
    impressions in shadow. The service may run or not. `rankloop warm-start --learner SPEC --out FILE LOG…` trains a
    learner and saves it for `rankloop.load`.

    If it is interrupted, the same command continues; no impression is learned twice. Malformed ones are reported and
    left out. docs/warm.md has the formats: JSON lines, TSV, Parquet, and logs of search engines.

    Example: rankloop warm-start shop monday.jsonl tuesday.jsonl.gz

    Example: rankloop warm-start shop responses.jsonl --format ltrlog --clicks events.jsonl

    Example: rankloop warm-start --learner "pairrank?init=base" --out warm.rankloop log.tsv

    Parameters
    ----------
    words
        The ranker (not with --learner) and the files.
    learner
        Teach this learner instead of a ranker: `pairrank?init=base`.
    out
        With --learner: where to save it.
    features
        With --learner: names in the learner's order, with commas; those of the first list if not given.
    normalization
        With --learner: query-minmax scales each feature to [0, 1] within a list, stream by sizes that are learned with
        it. A ranker has its own.
    seed
        With --learner: of the random numbers of learning. A ranker has its own.
    format
        Of the files; by their names if not given. ltrlog: answers of Elasticsearch or OpenSearch with logged features;
        solr: the same of Solr; ubi: queries of User Behavior Insights.
    clicks
        ltrlog, solr, ubi: files of UBI events that tell what was clicked, if the answers do not.
    actions
        What UBI's actions are worth, from 0 to 1: `click=0.3,purchase=1`.
    ids
        TSV: whether item ids are text or integers, as your requests have them.
    strict
        Stop at the first malformed list, with exit code 2. What was before it is kept.
    """
    from rankloop.logs import LogReader
    from rankloop.logs.engines import parse_action_values

    if (learner is None) != (out is None):
        raise InvalidParameter("--learner and --out belong together: what to teach, and where to save it")
    if learner is None and not words:
        raise InvalidParameter("name a ranker and its logs: rankloop warm-start RANKER LOG…")
    named: list[str] = []

    def tell(text: str) -> None:
        named.append(text)
        if len(named) <= NAMED:
            _out.people.print(text, highlight=False, soft_wrap=True, markup=False)

    logs = words if learner is not None else words[1:]
    reading = LogReader(
        logs,
        format,
        whole_ids=ids == "integer",
        strict=strict,
        on_bad=tell,
        clicks=clicks or (),
        actions=parse_action_values(actions),
    )
    _out.say_when_compiling()
    with _out.progress_bars() as bars:
        task = bars.add_task("reading", total=reading.total)

        def show(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        if learner is not None and out is not None:
            names = None if features is None else split_names(features)
            what, found = str(out), _teach(learner, out, reading, names, normalization, seed, show)
            lag = 0
        else:
            what = words[0]
            found, lag = _warm_ranker(what, store, reading, show)
    if len(named) > NAMED:
        _out.people.print(f"… and {len(named) - NAMED:,} more malformed lists", highlight=False)
    if json:
        _out.print_json({"target": what, **found._asdict(), "unlearned_impressions": lag, "malformed": named[:NAMED]})
        return
    rate = f", {found.lists / found.seconds:,.0f} lists a second" if found.lists and found.seconds else ""
    print(
        f"{what}: {found.lists:,} lists, {found.clicks:,} clicks; {found.skipped:,} skipped, {found.known:,} known "
        f"from before; {found.seconds:.1f} s{rate}"
    )
    if lag:
        print(f"{lag:,} of them wait for the process that learns {what}")


def _teach(spec: str, out: Path, reading: Any, names: list[str] | None, how: str, seed: int, show: Any) -> Any:
    from rankloop.core import registry
    from rankloop.core.scaling import standardized
    from rankloop.logs import CandidateBuilder, warm_start_file

    name, parameters = registry.parse_learner(spec)
    made = registry.make(name, **parameters)
    if how == "stream":
        made = standardized(made)
    features = CandidateBuilder(names, scale=how == "query-minmax")
    return warm_start_file(made, out, reading, features=features, seed=seed, on_progress=show)


def _warm_ranker(ranker: str, store: str | None, reading: Any, show: Any) -> tuple[Any, int]:
    with needs_extra("service"):
        from rankloop.service.control import rankers, warm_start
        from rankloop.service.offline.log_source import find_ranker
        from rankloop.service.serving.engine import Engine

    with readable(store) as database:
        find_ranker(database, ranker)  # before anything is started
    engine = Engine(settings(store))
    engine.start()
    try:
        found = warm_start.warm(engine, ranker, reading, show)
        return found, rankers.status(engine, ranker).unlearned_impressions
    finally:
        engine.stop()
