"""`rankloop catalog`: send items once, and see what is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from cyclopts import App

from rankloop.cli import _out
from rankloop.cli._store import LOCAL, Json, Key, Url, client, megabytes
from rankloop.core.files import ungzipped

NAMED = 20  # rejected lines that are told one by one
SECONDS = 120.0  # that a call with a thousand items may take
catalogs = App(name="catalog", help="Send items and users once, so that requests to rank need only name ids.")


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(catalogs)


@catalogs.command
def load(
    file: Path,
    /,
    *,
    catalog: str,
    kind: Literal["items", "users"] = "items",
    merge: bool = False,
    url: Url = LOCAL,
    key: Key = None,
    json: Json = False,
) -> None:
    """Upload a file of JSON lines, an item per line: {"id": "hat", "price": 9.0, "brand": "acme", "tags": ["red"]}.

    Rejected lines are printed and left out, and the exit code is 1. An interrupted upload can be repeated.

    Example: rankloop catalog load items.ndjson --catalog shop

    Example: rankloop catalog load prices.ndjson.gz --catalog shop --merge

    Parameters
    ----------
    file
        JSON lines, plain or gzip.
    catalog
        Its name; it is created if it does not exist.
    kind
        Whether the lines are items or users.
    merge
        Change only the fields that are sent, and leave the others of an item as they are.
    """
    with client(url, key, SECONDS) as service, _out.progress_bars() as bars:
        target = service.catalog(catalog) if kind == "items" else service.catalog(catalog).users
        task = bars.add_task("uploading", total=_count(file))

        def show(done: int) -> None:
            bars.update(task, completed=done)

        answer = (target.patch if merge else target.put)(_lines(file), show)
    if json:
        rejected = [{"line": one.line, "id": one.id, "reason": one.reason} for one in answer.results]
        _out.print_json(
            {
                "catalog": catalog,
                "counts": answer.counts,
                "rejected": rejected,
                "warnings": answer.warnings,
            }
        )
        sys.exit(1 if rejected else 0)
    for one in answer.results[:NAMED]:
        _out.people.print(f"{file}:{one.line}: {one.reason}", highlight=False, soft_wrap=True, markup=False)
    if len(answer.results) > NAMED:
        _out.people.print(f"… and {len(answer.results) - NAMED:,} more rejected lines", highlight=False)
    told = ", ".join(f"{count:,} {status}" for status, count in sorted(answer.counts.items()))
    print(f"{catalog}: {told or 'nothing in the file'}")
    for warning in answer.warnings:
        _out.people.print(f"warning: {warning}", highlight=False, soft_wrap=True, markup=False)
    if answer.results:
        sys.exit(1)


@catalogs.command
def show(catalog: str | None = None, /, *, url: Url = LOCAL, key: Key = None, json: Json = False) -> None:
    """Show what catalogs there are, or the fields of one.

    Example: rankloop catalog show shop

    Parameters
    ----------
    catalog
        Which; all of them if not given.
    """
    import msgspec

    with client(url, key, SECONDS) as service:
        found = service.catalogs() if catalog is None else [service.catalog(catalog).info()]
    if json:
        _out.print_json(msgspec.to_builtins(found))
        return
    rows = [
        [
            *(one.name, f"{one.items.count:,}", f"{one.users.count:,}", f"{len(one.items.fields)}"),
            *(
                megabytes(one.memory) if one.memory else "not loaded",
                ", ".join(one.rankers) or "none",
                f"{one.unknown_ids:,}",
            ),
        ]
        for one in found
    ]
    columns = ["catalog", "items", "users", "fields", "memory", "rankers", "unknown ids"]
    _out.print_table("Catalogs", columns, rows)
    if catalog is not None:
        for title, part in (("Fields of items", found[0].items), ("Fields of users", found[0].users)):
            if part.fields:
                told = [
                    [field.name, field.kind + (f" of {field.width}" if field.width else ""), _share(field, part)]
                    for field in part.fields
                ]
                _out.print_table(title, ["field", "kind", "filled"], told, numbers_from=2)


def _lines(file: Path) -> Iterator[bytes]:
    """The lines of a file, empty ones too: they count."""
    with file.open("rb") as raw:
        yield from ungzipped(raw)


def _count(file: Path) -> int:
    """How many lines there are, for the bar."""
    return sum(1 for _ in _lines(file))


def _share(field: Any, part: Any) -> str:
    """How many items have a field, of all of them."""
    return "not counted yet" if field.filled is None else f"{field.filled / max(part.count, 1):.0%}"
