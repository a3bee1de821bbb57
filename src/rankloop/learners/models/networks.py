"""Networks that the neural learners can learn: the built-in one, and any `torch.nn.Module` you bring.

A learner's `net` is a name ("two-layer", "three-layer", or one that you gave with `register`), a function that makes a
module for a number of features, or a module. Names go through JSON, so they are what a command line, a saved learner
and the service take; a name of your own is known where your code has called `register`, or where the environment
variable RANKLOOP_NETWORKS lists the Python modules that do ("shop.nets,shop.more").
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from rankloop.core.errors import InvalidParameter, MissingExtra, UnknownName
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.kernels import neural

VARIABLE = "RANKLOOP_NETWORKS"
BUILT_IN = ("two-layer", "three-layer")
Factory = Callable[[int], Any]
_registered: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Make `factory`, a function of the number of features that returns a `torch.nn.Module`, known by a name.

    The module maps (n, d) features to (n,) scores. It runs in evaluation mode: dropout is off, batch statistics stay.
    It is made with PyTorch's random numbers set by the learner's `seed`, so that learners with equal parameters start
    with equal weights.

    Examples
    --------
    >>> def make(features):
    ...     import torch
    ...     return torch.nn.Sequential(torch.nn.Linear(features, 1), torch.nn.Flatten(0))
    >>> register("linear", make)
    >>> from rankloop import make as make_learner
    >>> make_learner("olranknet", net="linear").net
    'linear'
    """
    if not isinstance(name, str) or not name or name in BUILT_IN:
        raise InvalidParameter(f"name is {name!r}; it must be a text, and none of {', '.join(BUILT_IN)}")
    if not callable(factory):
        raise InvalidParameter(f"factory of network {name!r} is {factory!r}; it must be a function of the features")
    _registered[name] = factory
    network.cache_clear()  # the name may have meant another one


class Forward(Protocol):
    """What a network says about some rows, and what follows from it."""

    scores: Array  # (n,) float64

    def gradient(self, pull: Array) -> Array:
        """(p,) ∇ Σ_i pull_i f(x_i)."""

    def lengths(self, inverse: Array) -> tuple[Array, Array]:
        """(n,) ‖g(x)‖²/m and (n,) ‖g(x) - mean‖²/m in the norm of a diagonal A⁻¹ (p,)."""

    def gram(self, inverse: Array, some: Array, order: Array) -> Array:
        """(n, r) ⟨g(x_i), g(x_j)⟩/m in that norm, for rows j in `some` (r,) and all i, or those before j in `order`."""

    def squares(self, pairs: Array, counts: Array) -> Array:
        """(p,) Σ over pairs (m, 2) of count·g_ij²/m."""

    def tangents(self) -> Array:
        """(n, p) g(x)/√m, written out."""


class Network(Protocol):
    """A function of weights and rows; holds nothing that is learned."""

    size: int  # of the flat array that holds its weights
    parameters: int  # p, that an optimizer moves: the two copies in a doubled network count as two

    def start(self) -> Array:
        """(p,) the weights to begin with, float64."""

    def frozen(self) -> Array:
        """(b,) what belongs to it but is not learned (a module's buffers), float64."""

    def forward(self, weights: Array, frozen: Array, rows: Array, learn: bool = False) -> Forward:
        """Score rows (n, d) of float32; `learn` says that `gradient` will be asked for."""


@lru_cache(maxsize=64)
def network(net: Any, features: int, width: int, seed: int) -> Network:
    """The network that a learner's parameters describe, for so many features."""
    if net == "two-layer":
        return TwoLayer(features, width, seed)
    from rankloop.learners.models import _torch  # PyTorch is imported here and nowhere else

    return _torch.TorchNetwork(_made(net, features, width, seed), width, said(net))


def require_network(net: Any) -> None:
    """Refuse a `net` that is nothing of what it may be, or that needs PyTorch where there is none."""
    if net == "two-layer":
        return
    if isinstance(net, str):
        if net not in BUILT_IN and net not in _registered:
            for module in filter(None, os.environ.get(VARIABLE, "").split(",")):
                import_module(module.strip())
        if net not in BUILT_IN and net not in _registered:
            raise UnknownName(
                f"no network is called {net!r}; there are {', '.join((*BUILT_IN, *_registered))}, and those that you "
                f"register: rankloop.learners.models.networks.register, or {VARIABLE} with the modules that call it"
            )
    elif not callable(net):
        raise InvalidParameter(f"net is {net!r}; it must be a name, a torch.nn.Module or a function that makes one")
    if find_spec("torch") is None:
        raise MissingExtra(f"network {said(net)}", "PyTorch", "neural")


def is_fixed(net: Any) -> bool:
    """Whether `net` is a module, which has one start, and not a way to make them."""
    return hasattr(net, "named_parameters") and not isinstance(net, type)


def _made(net: Any, features: int, width: int, seed: int) -> Any:
    from rankloop.learners.models import _torch

    if is_fixed(net):
        return net
    if net == "three-layer":
        return _torch.seeded(lambda: _torch.ThreeLayer(features, width), seed)
    factory = _registered[net] if isinstance(net, str) else net
    return _torch.seeded(lambda: factory(features), seed)


def said(net: Any) -> str:
    """A network's name for messages."""
    return repr(net) if isinstance(net, str) else getattr(net, "__name__", type(net).__name__)


class TwoLayer:
    """f(x) = √m w·φ(V [x; x]/√2), started so that f = 0 exactly: the network of paper 001, Algorithm 1, line 2.

    Gradients and tangent features are closed forms (`rankloop.kernels.neural`), so PyTorch is not needed. The two
    halves of V see the same input and move together; their mean (m, d) is kept instead of both.
    """

    def __init__(self, features: int, width: int, seed: int) -> None:
        self.features, self.width, self.seed = features, width, seed
        self.size, self.parameters = width * features + width, 2 * width * features + width

    def start(self) -> Array:
        """Blocks (W, 0; 0, W) of N(0, 4/m), whose mean over the copies is W/2, and last layer (w, -w) of N(0, 2/m)."""
        rng, half, m = Rng(self.seed).for_event("network", 0), self.width // 2, self.width
        hidden = 0.5 * rng.normal(0.0, np.sqrt(4.0 / m), (half, self.features)).ravel()
        output = rng.normal(0.0, np.sqrt(2.0 / m), half)
        return np.concatenate([hidden, hidden, output, -output])

    def frozen(self) -> Array:
        """Nothing."""
        return np.zeros(0)

    def forward(self, weights: Array, frozen: Array, rows: Array, learn: bool = False) -> _Scored:  # noqa: ARG002
        """The scores, with what gradients and tangent features need."""
        return _Scored(weights.astype(np.float32), rows, self.width)


class _Scored:
    """The two-layer network's answer to some rows."""

    def __init__(self, weights: Array, rows: Array, width: int) -> None:
        split = weights.size - width
        self.rows, self.output = rows, weights[split:]
        self.active = neural.activations(rows, weights[:split].reshape(width, -1))
        self.scores = neural.outputs(self.active, self.output)

    def gradient(self, pull: Array) -> Array:
        return neural.gradient(self.rows, self.active, self.output, pull)

    def lengths(self, inverse: Array) -> tuple[Array, Array]:
        return neural.tangent_lengths(self.rows, self.active, self.output, inverse)

    def gram(self, inverse: Array, some: Array, order: Array) -> Array:
        return neural.tangent_gram(self.rows, self.active, self.output, inverse, order, some)

    def squares(self, pairs: Array, counts: Array) -> Array:
        return neural.tangent_squares(self.rows, self.active, self.output, pairs, counts)

    def tangents(self) -> Array:
        return neural.tangents(self.rows, self.active, self.output)
