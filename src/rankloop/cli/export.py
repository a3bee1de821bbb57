"""`rankloop export`: take what was learned to a search engine, a runtime for networks, or anywhere as JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter

if TYPE_CHECKING:
    from rankloop.integrations.export import Exported


def add_to(app: App) -> None:
    """Register the command."""
    app.command(export)


def export(
    ranker: str,
    /,
    *,
    to: Literal["elasticsearch", "opensearch", "solr", "onnx", "json"],
    version: str | None = None,
    out: Path | None = None,
    store: str | None = None,
    features: str | None = None,
    normalisation: Literal["query-minmax", "none"] = "query-minmax",
) -> None:
    """Write a ranker's model as a search engine or a runtime takes it; docs/export.md has the calls that upload it.

    Exports a ranker of the store (which is only read: a running service is not touched), or a file with a saved
    learner. A model that the target cannot express is refused, with the remedy. Differences between the exported model
    and the ranker are printed as notes.

    Example: rankloop export shop --to elasticsearch --out shop.json

    Example: rankloop export shop --to onnx --version 3 --out shop.onnx

    Example: rankloop export warm.rankloop --features bm25,price --to solr

    Parameters
    ----------
    ranker
        Its name in the store, or a file that `rankloop.save`, `rankloop replay --out` or `rankloop warm` wrote.
    to
        Who is to score with it.
    version
        A number, or live for what is learned (as the last snapshot has it); what is served, if not given.
    out
        The file to write; standard output if not given.
    store
        As in `rankloop serve`.
    features
        Of a file: names in the learner's order, with commas.
    normalisation
        Of a file: what you do to features before the learner sees them.
    """
    from rankloop.core import files

    if Path(ranker).is_file():
        if features is None:
            raise InvalidParameter("a saved learner does not know what its features are called: give --features a,b,c")
        names = [name.strip() for name in features.split(",")]
        made = _of_file(Path(ranker), names, to, normalisation)
    else:
        made = _of_store(ranker, to, version, store)
    if out is not None:
        files.write(out, made.body)
    elif to == "onnx":
        sys.stdout.buffer.write(made.body)
    else:
        print(made.body.decode())
    for note in (*made.notes, *(() if out is None else (f"{made.name} is in {out}",))):
        _out.people.print(note, highlight=False, soft_wrap=True, markup=False)


def _of_file(path: Path, names: list[str], to: str, normalisation: str) -> Exported:
    from rankloop.core import registry
    from rankloop.integrations.export import export as exported

    learner = registry.load(path)
    return exported(learner, names, to, name=path.stem, normalisation=normalisation)  # type: ignore[arg-type]


def _of_store(name: str, to: str, version: str | None, store: str | None) -> Exported:
    try:
        from rankloop.service.offline.exports import export_ranker
        from rankloop.service.offline.past import find_ranker
        from rankloop.service.offline.replay import open_store
        from rankloop.service.settings import from_environment
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"exporting a ranker needs {error.name}; pip install 'rankloop[service]'") from None

    if version is not None and version != "live" and not version.isdigit():
        raise InvalidParameter(f"version is {version!r}; it must be a number, or live")
    wanted = int(version) if version is not None and version.isdigit() else version
    with open_store(from_environment(store=store).store) as database:
        return export_ranker(database, find_ranker(database, name), to, wanted)  # type: ignore[arg-type]
