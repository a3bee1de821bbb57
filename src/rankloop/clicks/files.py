"""All click models by name, and their files."""

from __future__ import annotations

import os

import numpy as np

from rankloop.clicks.cascade import Cascade
from rankloop.clicks.ccm import ClickChain
from rankloop.clicks.ctr import DocumentRate, GlobalRate, RankRate
from rankloop.clicks.dbn import DynamicBayesian
from rankloop.clicks.dcm import DependentClick
from rankloop.clicks.model import ClickModel
from rankloop.clicks.pairs import Pairs
from rankloop.clicks.pbm import PositionBased
from rankloop.clicks.sdbn import SimplifiedDBN
from rankloop.clicks.ubm import UserBrowsing
from rankloop.core import codec
from rankloop.core.errors import CodecError, RankloopError, UnknownName

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
    """The class of that name.

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
    """A fitted model as bytes: its name, its options and its numbers; no pickle."""
    return codec.dumps(model.state(), {"click model": model.name, "options": model.options()})


def loads(data: bytes, name: str = "these bytes") -> ClickModel:
    """The model that `dumps` wrote, bit for bit."""
    arrays, meta = codec.loads(data, name)
    if "click model" not in meta:
        raise CodecError(f"{name}: a rankloop file, but not a click model; `rankloop clicks fit` writes one")
    try:
        model = model_named(meta["click model"])(**meta["options"])
        pairs = {key.removeprefix("pairs/"): arrays.pop(key) for key in list(arrays) if key.startswith("pairs/")}
        trace = arrays.pop("trace_", np.zeros(0))
        model.given(Pairs.from_arrays(pairs), **arrays)
    except (RankloopError, TypeError, KeyError) as error:
        raise CodecError(f"{name}: not a whole click model ({error})") from None
    model.trace_ = trace
    return model


def save(model: ClickModel, path: str | os.PathLike[str]) -> None:
    """Write a fitted model, whole or not at all."""
    codec.write(path, dumps(model))


def load(path: str | os.PathLike[str]) -> ClickModel:
    """The model that `save` wrote.

    >>> from tempfile import TemporaryDirectory
    >>> model = PositionBased().given(Pairs.of(["shoes"], ["a"]), attraction_=[0.5], examination_=[1.0, 0.25])
    >>> with TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/pbm.model")
    ...     load(f"{folder}/pbm.model").examination_.tolist()
    [1.0, 0.25]
    """
    return loads(codec.read_bytes(path), str(path))
