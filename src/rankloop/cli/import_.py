"""`rankloop import`: rankers from the configuration of another system."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Any, Literal

from cyclopts import App

from rankloop.cli import _out
from rankloop.cli._store import Json, Key, client, split_names
from rankloop.core.errors import InvalidInput, MissingExtra

import_ = App(name="import", help="Make rankers from the configuration of Metarank or Azure Personalizer.")


def add_to(app: App) -> None:
    """Register the commands."""
    app.command(import_)


@import_.command
def metarank(
    config: Path,
    *,
    model: str | None = None,
    catalog: str = "metarank",
    sent: str = "",
    exposure: Literal["shadow", "bounded", "full"] = "bounded",
    url: str | None = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Turn Metarank's configuration into rankers, a model each, and say feature by feature what becomes of it.

    Prints a table; with --url the rankers are made, too, in the service there. docs/migrate-metarank.md tells the rest.

    Example: rankloop import metarank config.yml --url http://127.0.0.1:8080

    Parameters
    ----------
    config
        The YAML file that Metarank reads.
    model
        Only this model; all if not given.
    catalog
        Where items and users are kept.
    sent
        Item fields that come with requests rather than with item events, separated by commas; `relevancy` does anyway.
    exposure
        What is shown of the ranking at first; PATCH changes it at any time.
    url
        A service, in which to make the rankers.
    """
    from rankloop.integrations.metarank import imported

    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingExtra("Metarank's configuration", "pyyaml", "service") from None
    try:
        given = yaml.safe_load(config.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{config}: no YAML ({error})") from None
    fields = split_names(sent)
    found = imported(given, catalog, fields, model)
    for one in found:
        one.spec["exposure"] = exposure
    if json:
        _out.print_json(
            [{"ranker": one.model, "spec": one.spec, "features": [row._asdict() for row in one.rows]} for one in found]
        )
    for one in [] if json else found:
        counts = [f"{sum(row.verdict == what for row in one.rows)} {what}" for what in _VERDICTS]
        columns = ["feature", "type", "", "how"]
        _out.print_table(f"model {one.model}: {', '.join(counts)}", columns, [list(row) for row in one.rows], 4)
    for one in found:
        _make(one.model, one.spec, url, key, json)


_VERDICTS = ("taken over", "approximated", "not there")


@import_.command
def personalizer(
    settings: Path | None = None,
    *,
    ranker: str = "personalizer",
    width: int = 131_072,
    url: str | None = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Make a ranker that answers the calls of an Azure Personalizer resource, with the resource's settings.

    Prints what becomes of each setting; with --url the ranker is made, too, in the service there.
    docs/migrate-personalizer.md tells the rest.

    Example: rankloop import personalizer settings.json --url http://127.0.0.1:8080

    Parameters
    ----------
    settings
        The JSON that Personalizer's `GET /configurations/service` answered; its defaults if not given.
    ranker
        What to call it; calls without a name in their path go to `personalizer`.
    width
        Columns that features and their crosses are hashed into: ten times as many as there are is plenty. Each takes 16
        bytes in every process; at most the setting max_width, 1,000,000.
    url
        A service, in which to make the ranker.
    """
    from rankloop.integrations.personalizer import imported

    given: Any = {}
    if settings is not None:
        try:
            given = json_.loads(settings.read_text("utf-8"))
        except ValueError as error:
            raise InvalidInput(f"{settings}: no JSON ({error})") from None
    if width < 1:
        raise InvalidInput(f"width is {width}; give at least one column")
    spec, rows = imported(given, width)
    if json:
        _out.print_json({"ranker": ranker, "spec": spec, "settings": [row._asdict() for row in rows]})
    else:
        _out.print_table(f"ranker {ranker}", ["setting", "is", "becomes"], [list(row) for row in rows], 3)
    _make(ranker, spec, url, key, json)


def _make(name: str, spec: dict[str, Any], url: str | None, key: str | None, quiet: bool) -> None:
    """Make a ranker in a running service, or say how."""
    if url is None:
        if not quiet:
            catalog = spec.get("catalog")
            first = f"PUT /v1/catalogs/{catalog}/items with [] if there is no such catalog, then " if catalog else ""
            print(f"{first}PUT /v1/rankers/{name} with this, or give --url:\n{json_.dumps(spec)}")
        return
    with client(url, key) as service:
        there = {one.name for one in service.rankers()}
        if "catalog" in spec:
            service.catalog(spec["catalog"]).put([])  # items come later, with events
        warnings = service.put_ranker(name, **spec).warnings
    if not quiet:
        print(f"ranker {name} {'has these settings now' if name in there else 'is made'}, at {url}")
        for warning in warnings:
            _out.people.print(f"warning: {warning}", highlight=False, soft_wrap=True, markup=False)
