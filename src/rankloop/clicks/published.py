"""Click-model parameters that others have fitted, as JSON.

The file says, model by model and query by query, what each document's attraction is, and what else the model needs:

    {"PBM": {"2548": {"attraction": [0.59, 0.09, …], "examination": [1, 0.97, …]}, …}, "CM": {…}, …}

| model | beside `attraction`, a number for each document |
| --- | --- |
| CM | nothing |
| DCM | `stop_by_rank`, a number for each rank |
| PBM | `examination`, a number for each rank |
| UBM | `examination`, m rows of m: row = rank, column = rank of the last click counted from 0, the last column: none |
| DBN | `satisfaction`, a number for each document, and `abandon`, one number |
| CCM | `continue_no_click`, `continue_click_irrelevant`, `continue_click_relevant`, one number each |

Documents are called "0", "1", … in the order of `attraction`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rankloop.clicks.cascade import Cascade
from rankloop.clicks.ccm import ClickChain
from rankloop.clicks.dbn import DynamicBayesian
from rankloop.clicks.dcm import DependentClick
from rankloop.clicks.model import ClickModel
from rankloop.clicks.pairs import Pairs
from rankloop.clicks.pbm import PositionBased
from rankloop.clicks.ubm import UserBrowsing
from rankloop.core.errors import DataError, InvalidInput, UnknownName
from rankloop.core.types import Array

Numbers = Callable[[str], Array]


def _browsing(examination: Array) -> Array:
    """Ours has "no click yet" in the first column."""
    if examination.ndim != 2 or examination.shape[0] != examination.shape[1]:
        raise InvalidInput(f"examination has shape {examination.shape}; it must have a row and a column for each rank")
    return np.roll(examination, 1, axis=1)


# name in the file -> the model, and what it learns beside attraction from the file's keys
_READ: dict[str, tuple[type[ClickModel], Callable[[Numbers], dict[str, Array]]]] = {
    "CM": (Cascade, lambda _: {}),
    "DCM": (DependentClick, lambda of: {"stop_": of("stop_by_rank")}),
    "PBM": (PositionBased, lambda of: {"examination_": of("examination")}),
    "UBM": (UserBrowsing, lambda of: {"examination_": _browsing(of("examination"))}),
    "DBN": (
        DynamicBayesian,
        lambda of: {"satisfaction_": of("satisfaction"), "continuation_": 1.0 - of("abandon").reshape(1)},
    ),
    "CCM": (
        ClickChain,
        lambda of: {
            "continuation_": np.array(
                [of(f"continue_{after}") for after in ("no_click", "click_irrelevant", "click_relevant")]
            )
        },
    ),
}


def read_published(path: str | os.PathLike[str]) -> dict[str, dict[str, ClickModel]]:
    """The models of a file, by their name there and by query; each knows the documents of its one query.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "models.json")
    ...     _ = path.write_text('{"PBM": {"shoes": {"attraction": [0.5, 0.8], "examination": [1, 0.5]}}}')
    ...     model = read_published(path)["PBM"]["shoes"]
    >>> model.click_probabilities("shoes", ["1", "0"]).tolist()
    [0.8, 0.25]
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a file of click-model parameters") from None
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}); see rankloop.clicks.published for what it must hold") from None
    found: dict[str, dict[str, ClickModel]] = {}
    for name, queries in _items(content, f"{path}"):
        if name not in _READ:
            raise UnknownName.among("published click model", name, _READ)
        found[name] = {
            query: _model(f"{path}: {name}, query {query}", name, query, numbers)
            for query, numbers in _items(queries, f"{path}: {name}")
        }
    return found


def _model(where: str, name: str, query: str, numbers: Any) -> ClickModel:
    kind, rest = _READ[name]
    content = dict(_items(numbers, where))

    def of(key: str) -> Array:
        if key not in content:
            raise DataError(f"{where}: no {key!r}; it has {', '.join(content)}")
        try:
            return np.array(content[key], dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{where}: {key!r} is {content[key]!r:.100}; give numbers") from None

    attraction = of("attraction")
    if attraction.ndim != 1 or not attraction.size:
        raise DataError(f"{where}: attraction has shape {attraction.shape}; give a number for each document")
    documents = [str(i) for i in range(attraction.size)]
    pairs = Pairs.of([query] * len(documents), documents)
    order = np.array(pairs.names()[1], dtype=np.int64)  # pairs are in the order of their names: "10" before "2"
    try:
        learned = {"attraction_": attraction} | rest(of)
        for key, shape in kind.learned.items():
            if shape == ("pairs",) and learned[key].shape == order.shape:
                learned[key] = learned[key][order]
        return kind().given(pairs, **learned)
    except DataError:
        raise
    except (InvalidInput, ValueError) as error:
        raise DataError(f"{where}: {error}") from None


def _items(content: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(content, dict) or not content:
        raise DataError(f"{where}: {content!r:.60} where names and what they hold were expected, as a JSON object")
    return list(content.items())
