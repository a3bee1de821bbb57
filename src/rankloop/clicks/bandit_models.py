"""Users for bandit experiments, by click model and query.

| source | users |
| --- | --- |
| a JSON file | published parameters (`rankloop.clicks.files.read_published`) |
| a model file | the queries of a fitted model with most documents, the most attractive ones of each |
| `generated?queries=10&documents=10&seed=0` | CM and PBM with random attractions |
| `fading?power=3` | a PBM whose last two positions are examined with probability 0.5^power (paper 002, section 5) |
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

from rankloop.clicks import ClickModel, load
from rankloop.clicks.cascade import Cascade
from rankloop.clicks.files import read_published
from rankloop.clicks.pbm import PositionBased
from rankloop.clicks.readers import read_log
from rankloop.core import files
from rankloop.core.errors import DataError
from rankloop.core.specs import integer, only, parse_spec
from rankloop.core.types import Array
from rankloop.kernels.click_models import CASCADE, CHAIN, POSITION, ClickParameters

Users = dict[str, dict[str, ClickParameters]]  # model -> query -> user; documents are 0, 1, … of the query
DOCUMENTS = 10  # of each query of a fitted model, as in paper 002
QUERIES = 10  # of a fitted model
LOGGED_QUERIES = 60  # of a raw log: the most frequent ones (paper 002, section 5)
_ONE, _TABLE = np.ones(1), np.ones((1, 1))


def fit_if_log(source: str, folder: Path) -> str:
    """Return the source; for a click log, fit CM and PBM to each of its 60 most frequent queries first."""
    path = Path(source)
    if not path.is_file() or path.suffix.lower() in (".json", ".model"):
        return source
    log = read_log(path, skip_bad=True)
    asked = log.pairs.names()[0][log.shown[:, 0]]
    names, counts = np.unique(asked, return_counts=True)
    names = names[np.argsort(-counts, kind="stable")]
    often = [name for name in names if len(log.pairs.documents_of(name)) >= DOCUMENTS]
    models: dict[str, dict[str, dict[str, list[float]]]] = {model: {} for model in ("CM", "PBM")}
    for query in map(str, often[:LOGGED_QUERIES]):
        part = log.part(asked == query)
        documents = part.pairs.documents_of(query)
        users = [model.fit(part).parameters_of(query, documents) for model in (Cascade(), PositionBased())]
        best = np.sort(np.argsort(-users[1].attraction, kind="stable")[:DOCUMENTS])
        for name, user in zip(models, users, strict=True):
            models[name][query] = {"attraction": user.attraction[best].tolist()}
        examined = users[1].examination[:, 0]
        models["PBM"][query]["examination"] = examined[np.minimum(np.arange(DOCUMENTS), examined.size - 1)].tolist()
    if not often:
        raise DataError(f"{source}: no query of the log has {DOCUMENTS} documents; give a log with longer lists")
    files.write(folder / f"{path.name}.models.json", json.dumps(models).encode())
    return str(folder / f"{path.name}.models.json")


@lru_cache(maxsize=4)
def open_models(source: str) -> Users:
    """Return the users of a source.

    >>> users = open_models("generated?queries=2&documents=4")
    >>> {model: list(queries) for model, queries in users.items()}
    {'CM': ['1', '2'], 'PBM': ['1', '2']}
    """
    name, options = parse_spec(source)
    if name == "generated":
        only(options, ("queries", "documents", "seed"), name)
        return _generated(
            integer(options, "queries", 10, 1), integer(options, "documents", DOCUMENTS, 2), integer(options, "seed", 0)
        )
    if name == "fading":
        only(options, ("power",), name)
        return {"PBM": {name: _fading(integer(options, "power", 1))}}
    if not Path(source).is_file():
        raise DataError(f"{source}: no such file; give click models as JSON, or what `rankloop clicks fit` wrote")
    if Path(source).suffix.lower() == ".json":
        found = read_published(source)
        return {
            model: {query: one.parameters_of(query, one.pairs.documents_of(query)) for query, one in queries.items()}
            for model, queries in found.items()
        }
    fitted = load(source)
    return {fitted.name.upper(): _frequent(fitted, source)}


def reordered(user: ClickParameters, order: Array) -> ClickParameters:
    """Return the same user with the documents in another order."""
    after_click = user.after_click[order] if user.kind in (CASCADE, CHAIN) else user.after_click
    return user._replace(attraction=user.attraction[order], after_click=after_click)


def _generated(queries: int, documents: int, seed: int) -> Users:
    """Return users with attractions like fitted ones: a few documents attract, most hardly do."""
    rng = np.random.default_rng([seed, 2])
    examination = (1.0 / (1.0 + 0.35 * np.arange(documents))).reshape(-1, 1)
    users: Users = {"CM": {}, "PBM": {}}
    for query in range(1, queries + 1):
        reader = np.exp(rng.uniform(np.log(0.01), np.log(0.7), documents))
        users["CM"][str(query)] = ClickParameters(CASCADE, reader, np.zeros(documents), _ONE, 1.0, _TABLE)
        looker = 0.05 + 0.6 * rng.beta(1.0, 3.0, documents)
        users["PBM"][str(query)] = ClickParameters(POSITION, looker, _ONE, _ONE, 1.0, examination)
    return users


def _fading(power: int) -> ClickParameters:
    """Return a user for whom the most attractive document is last, where it is rarely examined."""
    attraction = np.array([0.5] * 9 + [0.9])
    examination = np.array([0.9] * 8 + [0.5**power] * 2).reshape(-1, 1)
    return ClickParameters(POSITION, attraction, _ONE, _ONE, 1.0, examination)


def _frequent(model: ClickModel, source: str) -> dict[str, ClickParameters]:
    """Return users of the queries with most documents, with the most attractive documents of each."""
    queries, counts = np.unique(model.pairs.names()[0], return_counts=True)
    large = [q for q in np.argsort(-counts, kind="stable")[:QUERIES] if counts[q] >= DOCUMENTS]
    if not large:
        raise DataError(f"{source}: no query has {DOCUMENTS} documents; fit a model to a log with longer lists")
    users = {}
    for name in map(str, queries[large]):
        user = model.parameters_of(name, model.pairs.documents_of(name))
        best = np.sort(np.argsort(-user.attraction, kind="stable")[:DOCUMENTS])
        users[name] = reordered(user, best)
    return users
