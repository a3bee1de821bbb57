"""Click models by name and in files: our own format, and JSON of published parameters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rankloop.clicks.cascade import Cascade
from rankloop.clicks.ccm import ClickChain
from rankloop.clicks.ctr import DocumentRate, GlobalRate, RankRate
from rankloop.clicks.dbn import DynamicBayesian, SimplifiedDBN
from rankloop.clicks.dcm import DependentClick
from rankloop.clicks.log import Pairs
from rankloop.clicks.model import ClickModel
from rankloop.clicks.pbm import PositionBased
from rankloop.clicks.ubm import UserBrowsing
from rankloop.core import codec, files
from rankloop.core.errors import CodecError, DataError, InvalidInput, RankloopError, UnknownName
from rankloop.core.types import Array

_ALL: tuple[type[ClickModel], ...] = (
    GlobalRate,
    RankRate,
    DocumentRate,
    Cascade,
    DependentClick,
    PositionBased,
    UserBrowsing,
    SimplifiedDBN,
    DynamicBayesian,
    ClickChain,
)
MODELS: dict[str, type[ClickModel]] = {kind.name: kind for kind in _ALL}


def model_named(name: str) -> type[ClickModel]:
    """Return the class of a name.

    >>> model_named("pmb")
    Traceback (most recent call last):
    ...
    rankloop.core.errors.UnknownName: no click model is called 'pmb'; did you mean 'pbm'? there are ctr, ctr-rank,
    ctr-document, cm, dcm, pbm, ubm, sdbn, dbn, ccm
    """
    if name not in MODELS:
        raise UnknownName.among("click model", name, MODELS)
    return MODELS[name]


def dumps(model: ClickModel) -> bytes:
    """Return a fitted model as bytes: its name, options and parameters."""
    return codec.dumps(model.state(), {"click model": model.name, "options": model.options()})


def loads(data: bytes, name: str = "these bytes") -> ClickModel:
    """Restore what `dumps` returned, bit for bit."""
    arrays, meta = codec.loads(data, name)
    if "click model" not in meta:
        raise CodecError(f"{name}: a rankloop file, but not a click model; `rankloop clicks fit` writes one")
    try:
        model = model_named(meta["click model"])(**meta["options"])
        pairs = {key.removeprefix("pairs/"): arrays.pop(key) for key in list(arrays) if key.startswith("pairs/")}
        trace = arrays.pop("trace_", np.zeros(0))
        model.given(Pairs.from_arrays(pairs), **arrays)
    except (RankloopError, TypeError, KeyError) as error:
        raise CodecError(f"{name}: not a complete click model ({error})") from None
    model.trace_ = trace
    return model


def save(model: ClickModel, path: str | os.PathLike[str]) -> None:
    """Write a fitted model atomically."""
    files.write(path, dumps(model))


def load(path: str | os.PathLike[str]) -> ClickModel:
    """Read the model that `save` wrote.

    >>> from tempfile import TemporaryDirectory
    >>> model = PositionBased().given(Pairs.of(["shoes"], ["a"]), attraction_=[0.5], examination_=[1.0, 0.25])
    >>> with TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/pbm.model")
    ...     load(f"{folder}/pbm.model").examination_.tolist()
    [1.0, 0.25]
    """
    return loads(files.read_bytes(path), str(path))


# -- published parameters ------------------------------------------------------------------------------------------

_Lookup = Callable[[str], Array]


def _browsing(examination: Array) -> Array:
    """Move "no click yet" to the first column."""
    if examination.ndim != 2 or examination.shape[0] != examination.shape[1]:
        raise InvalidInput(f"examination has shape {examination.shape}; it must have a row and a column for each rank")
    return np.roll(examination, 1, axis=1)


# name in the file -> model, and its parameters beside attraction
_READ: dict[str, tuple[type[ClickModel], Callable[[_Lookup], dict[str, Array]]]] = {
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
    """Read published parameters: models by name and by query, each with the documents of its query.

    The JSON file holds `{"PBM": {"2548": {"attraction": [0.59, …], "examination": [1, …]}, …}, "CM": {…}, …}`.
    Documents are called "0", "1", … in the order of `attraction`. Other keys: DCM `stop_by_rank`; PBM `examination`;
    UBM `examination`, m rows of m (rank, rank of the last click, last column: none); DBN `satisfaction` and `abandon`;
    CCM `continue_no_click`, `continue_click_irrelevant`, `continue_click_relevant`.

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
        raise DataError(f"{path}: not JSON ({error}); see rankloop.clicks.files.read_published") from None
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
