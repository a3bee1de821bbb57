"""`rankloop export` and `rankloop export-log`: models for other programs, and the log as Parquet files."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.cli._store import Json, Store, megabytes, needs_extra, readable, split_names
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.integrations.export import Exported


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(export)
    app.command(export_log)


def export(
    ranker: str,
    /,
    *,
    to: Literal["elasticsearch", "opensearch", "solr", "onnx", "json"],
    version: str | None = None,
    out: Path | None = None,
    store: Store = None,
    features: str | None = None,
    normalization: Literal["query-minmax", "none"] = "query-minmax",
) -> None:
    """Write a ranker's model for a search engine or a runtime; docs/export.md has the calls that upload it.

    Exports a ranker of the store, or a file with a saved learner. A model that the format cannot express is refused,
    with the remedy. Differences between the exported model and the ranker are printed as notes.

    Example: rankloop export shop --to elasticsearch --out shop.json

    Example: rankloop export shop --to onnx --version 3 --out shop.onnx

    Example: rankloop export warm.rankloop --features bm25,price --to solr

    Parameters
    ----------
    ranker
        Its name in the store, or a file that `rankloop.save`, `rankloop replay --out` or `rankloop warm-start` wrote.
    to
        The format.
    version
        A number, or live for the learned state (of the last snapshot); the version that is served, if not given.
    out
        The file to write; standard output if not given.
    features
        Of a file: names in the learner's order, separated by commas.
    normalization
        Of a file: what you do to features before the learner gets them.
    """
    from rankloop.core import files

    made = _of_file(Path(ranker), features, to, normalization) if Path(ranker).is_file() else None
    made = made or _of_store(ranker, to, version, store)
    if out is not None:
        files.write(out, made.body)
    elif to == "onnx":
        sys.stdout.buffer.write(made.body)
    else:
        print(made.body.decode())
    for note in (*made.notes, *(() if out is None else (f"{made.name} is in {out}",))):
        _out.people.print(note, highlight=False, soft_wrap=True, markup=False)


def _of_file(path: Path, features: str | None, to: Any, normalization: Any) -> Exported:
    from rankloop.core import registry
    from rankloop.integrations.export import export as exported

    if features is None:
        raise InvalidParameter("a saved learner does not have the names of its features: give --features a,b,c")
    return exported(registry.load(path), split_names(features), to, name=path.stem, normalization=normalization)


def _of_store(name: str, to: Any, version: str | None, store: str | None) -> Exported:
    if version is not None and version != "live" and not version.isdigit():
        raise InvalidParameter(f"version is {version!r}; it must be a number, or live")
    wanted: Any = int(version) if version is not None and version.isdigit() else version
    with readable(store) as database:
        from rankloop.service.offline.log_source import find_ranker
        from rankloop.service.offline.replay import export_ranker

        return export_ranker(database, find_ranker(database, name), to, wanted)


def export_log(
    *,
    out: Path,
    store: Store = None,
    ranker: Annotated[list[str] | None, Parameter(negative=())] = None,
    json: Json = False,
) -> None:
    """Write outcomes with their features, propensities and feedback as Parquet files, by ranker and day.

    A second run adds only what is new, and one that was interrupted continues: a file is complete or does not exist.
    Impressions that still wait for feedback are left to the next run. The kept states are exported too, so that
    `rankloop replay --log` does not need the store. docs/replay.md has the schema. The service may run.

    Example: rankloop export-log --out log

    Example: rankloop export-log --store postgresql://db/rankloop --out log

    Parameters
    ----------
    out
        The folder; it is created if it does not exist.
    ranker
        Only this one; may be repeated. All of the store, if not given.
    """
    with needs_extra("service,archive"):
        from rankloop.service.maintenance.archive.exporting import export_log as exported
        from rankloop.service.offline.log_source import find_ranker
        from rankloop.service.storage import rankers
    with readable(store) as database, _out.progress_bars() as bars:
        names = ranker or [one.name for one in database.read(rankers.list_rankers)]
        for name in names:
            find_ranker(database, name)
        tasks = {name: bars.add_task(name, total=None) for name in names}
        began = time.perf_counter()
        found = exported(database, out, names, lambda who, n, of: bars.update(tasks[who], completed=n, total=of))
    seconds = time.perf_counter() - began
    if json:
        _out.print_json({"out": str(out), "seconds": seconds, "rankers": [one._asdict() for one in found]})
        return
    rows = [[one.ranker, f"{one.rows:,}", f"{one.files:,}", megabytes(one.bytes), f"{one.outcomes:,}"] for one in found]
    _out.print_table(f"Added to {out}", ["ranker", "lists", "files", "bytes", "exported up to"], rows)
    lists = sum(one.rows for one in found)
    print(f"{lists:,} lists in {seconds:.1f} s, {lists / seconds:,.0f} per second" if lists else "nothing is new")
