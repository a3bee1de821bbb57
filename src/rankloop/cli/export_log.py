"""`rankloop export-log`: the log of a store as Parquet files, by ranker and day."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter


def add_to(app: App) -> None:
    """Register the command."""
    app.command(export_log)


def export_log(
    *,
    out: Path,
    store: str | None = None,
    ranker: Annotated[list[str] | None, Parameter(negative=())] = None,
    since: str | None = None,
    until: str | None = None,
    json: bool = False,
) -> None:
    """Write settled lists with their features, probabilities and what users did as Parquet, by ranker and day.

    A second run adds only what is new, and one that was interrupted goes on where it was: a file is there whole or not
    at all. Lists that still wait for feedback wait for the next run. The states that were kept go along, so that
    `rankloop replay --log` can do without the store. docs/replay.md has the schema. A running service is not touched.

    Example: rankloop export-log --out log

    Example: rankloop export-log --store postgresql://db/rankloop --out log --until 2026-11-17

    Parameters
    ----------
    out
        The folder; made if it is not there.
    store
        As in `rankloop serve`.
    ranker
        Only this one; may be repeated. All of the store, if not given.
    since
        Only what was settled from this day (2026-11-17) or time (2026-11-17T06:00, UTC) on.
    until
        Only what was settled before it.
    json
        Print JSON instead of a table.
    """
    try:
        from rankloop.service.maintenance.archive.exporting import export_log as exported
        from rankloop.service.offline.past import find_ranker
        from rankloop.service.offline.replay import open_store
        from rankloop.service.settings import from_environment
        from rankloop.service.storage import admin
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"export-log needs {error.name}; pip install 'rankloop[service,archive]'") from None

    first, end = moment("since", since), moment("until", until)
    if first is not None and end is not None and first >= end:
        raise InvalidParameter(f"since is {since} and until {until}; the first must be before the second")
    with open_store(from_environment(store=store).store) as database, _out.progress_bars() as bars:
        names = ranker or [one.name for one in database.read(admin.rankers)]
        for name in names:
            find_ranker(database, name)
        tasks = {name: bars.add_task(name, total=None) for name in names}
        began = time.perf_counter()
        found = exported(
            database, out, names, first, end, lambda who, n, of: bars.update(tasks[who], completed=n, total=of)
        )
    seconds = time.perf_counter() - began
    if json:
        _out.print_json({"out": str(out), "seconds": seconds, "rankers": [one._asdict() for one in found]})
        return
    rows = [[one.ranker, f"{one.rows:,}", f"{one.files:,}", _size(one.bytes), f"{one.outcomes:,}"] for one in found]
    _out.print_table(f"Added to {out}", ["ranker", "lists", "files", "bytes", "exported up to"], rows)
    lists = sum(one.rows for one in found)
    print(f"{lists:,} lists in {seconds:.1f} s, {lists / seconds:,.0f} a second" if lists else "nothing is new")


def moment(name: str, text: str | None) -> float | None:
    """Unix time of a day or time; UTC where it does not say."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParameter(f"{name} is {text!r}; give a day (2026-11-17) or a time (2026-11-17T06:00)") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
