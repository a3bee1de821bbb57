"""`rankloop audit`."""

from __future__ import annotations

import time

from cyclopts import App

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter


def add_to(app: App) -> None:
    """Register the command."""
    app.command(audit)


def audit(*, ranker: str | None = None, limit: int = 50, store: str | None = None, json: bool = False) -> None:
    """Show who changed what and when, the newest first.

    Rankers made, changed and deleted, versions, experiments, keys, users forgotten; with the name of the key and the id
    of the request, by which the log of the service has more.

    Example: rankloop audit --ranker shop

    Parameters
    ----------
    ranker
        Only what was changed of this one.
    limit
        How many.
    store
        As in `rankloop serve`.
    json
        Print JSON.
    """
    from rankloop.service.settings import from_environment
    from rankloop.service.storage import audit as stored
    from rankloop.service.supervisor.run import opened

    if limit < 1:
        raise InvalidParameter(f"limit is {limit}; give at least 1")
    with opened(from_environment(store=store)) as writer:
        found = writer.database.read(lambda c: stored.listed(c, limit, None if ranker is None else [ranker]))
    if json:
        names = {"who": "key"}
        _out.print_json([{names.get(name, name): value for name, value in one._asdict().items()} for one in found])
        return
    rows = [
        [_second(one.created), one.who or "no key", one.action, one.ranker or "", one.text, one.request_id]
        for one in found
    ]
    columns = ["when (UTC)", "key", "action", "ranker", "what", "request"]
    _out.print_table("Changes", columns, rows, numbers_from=9)


def _second(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(when))
