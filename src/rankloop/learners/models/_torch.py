"""PyTorch modules as networks. The only file that imports PyTorch; `networks.network` imports it when it is needed."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.func import functional_call, grad, vmap

from rankloop.core.errors import InvalidParameter
from rankloop.core.types import Array

Tensors = dict[str, Any]


def seeded(make: Callable[[], Any], seed: int) -> Any:
    """What `make` returns with PyTorch's random numbers started from `seed`; the caller's own are left as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class ThreeLayer(torch.nn.Module):
    """The paper's network with one more layer, f(x) = √m w·φ(W₂ φ(W₁ [x; x]/√2)), started symmetric."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        half = width // 2
        first, second = (torch.randn(half, inputs) * (4 / width) ** 0.5 for inputs in (features, half))
        last = torch.randn(half) * (2 / width) ** 0.5
        self.first, self.second = (torch.nn.Parameter(_twice(block)) for block in (first, second))
        self.last = torch.nn.Parameter(torch.cat([last, -last]))

    def forward(self, rows: Any) -> Any:
        """(n,) scores of rows (n, d)."""
        doubled = torch.cat([rows, rows], dim=-1) * 0.5**0.5
        hidden = torch.relu(torch.relu(doubled @ self.first.T) @ self.second.T)
        return hidden @ self.last * self.last.numel() ** 0.5


def _twice(block: Any) -> Any:
    """(block, 0; 0, block)."""
    zero = torch.zeros_like(block)
    return torch.cat([torch.cat([block, zero], dim=1), torch.cat([zero, block], dim=1)])


class TorchNetwork:
    """A module as a function of flat weights: the module itself is copied, and never changed."""

    def __init__(self, module: Any, width: int, name: str) -> None:
        if not isinstance(module, torch.nn.Module):
            raise InvalidParameter(f"network {name} is {type(module).__name__}; it must be a torch.nn.Module")
        self.module, self.width, self.name = copy.deepcopy(module).eval().requires_grad_(False), width, name
        self._weights, self._buffers = dict(self.module.named_parameters()), dict(self.module.named_buffers())
        self.size = self.parameters = sum(value.numel() for value in self._weights.values())
        self._lock = threading.Lock()
        if self.size == 0:
            raise InvalidParameter(f"network {name} has no parameters; there is nothing to learn")

    def start(self) -> Array:
        """The module's own weights."""
        return _flat(self._weights)

    def frozen(self) -> Array:
        """The module's buffers."""
        return _flat(self._buffers)

    def forward(self, weights: Array, frozen: Array, rows: Array, learn: bool = False) -> _Scored:
        """The module's scores."""
        parts = _split(weights, self._weights)
        if learn:
            parts = {name: value.requires_grad_() for name, value in parts.items()}
        first = next(iter(self._weights.values()))
        inputs = torch.from_numpy(rows).to(first.device, first.dtype)
        return _Scored(self, parts, _split(frozen, self._buffers), inputs)

    def call(self, weights: Tensors, buffers: Tensors, rows: Any) -> Any:
        """The module's scores with these weights, which PyTorch hangs into the module for a moment."""
        return functional_call(self.module, (weights, buffers), (rows,))

    def alone(self) -> threading.Lock:
        """To be held around `call`: learners in other threads may use the same module."""
        return self._lock

    def with_weights(self, weights: Array, frozen: Array) -> Any:
        """A copy of the module that has these weights."""
        made = copy.deepcopy(self.module).requires_grad_()
        made.load_state_dict(_split(weights, self._weights) | _split(frozen, self._buffers), strict=False)
        return made


class _Scored:
    """A module's answer to some rows."""

    def __init__(self, network: TorchNetwork, weights: Tensors, buffers: Tensors, rows: Any) -> None:
        self.network, self.weights, self.buffers, self.rows = network, weights, buffers, rows
        with network.alone():
            self._scores = network.call(weights, buffers, rows)
        if self._scores.shape != (len(rows),):
            raise InvalidParameter(
                f"network {network.name} gave scores of shape {tuple(self._scores.shape)} for {len(rows)} rows; "
                f"it must map (n, d) features to (n,) scores: add .squeeze(-1) or torch.nn.Flatten(0)"
            )
        self.scores: Array = self._scores.detach().cpu().numpy().astype(np.float64)
        self._tangents: Array | None = None

    def gradient(self, pull: Array) -> Array:
        pulled = torch.from_numpy(pull).to(self._scores.device, self._scores.dtype)
        leaves = list(self.weights.values())
        slopes = torch.autograd.grad(self._scores, leaves, pulled, allow_unused=True)
        return _flat(
            {
                str(i): torch.zeros_like(leaf) if slope is None else slope
                for i, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True))
            }
        )

    def lengths(self, inverse: Array) -> tuple[Array, Array]:
        g = self.tangents()
        return (g * g) @ inverse, (g - g.mean(0)) ** 2 @ inverse

    def gram(self, inverse: Array, some: Array, order: Array) -> Array:  # noqa: ARG002
        g = self.tangents()
        gram: Array = g @ (g[some] * inverse).T
        return gram

    def squares(self, pairs: Array, counts: Array) -> Array:
        g = self.tangents()
        total: Array = counts @ (g[pairs[:, 0]] - g[pairs[:, 1]]) ** 2
        return total

    def tangents(self) -> Array:
        if self._tangents is None:
            plain = {name: value.detach() for name, value in self.weights.items()}

            def score(weights: Tensors, row: Any) -> Any:
                return self.network.call(weights, self.buffers, row[None])[0]

            with self.network.alone():
                slopes = vmap(grad(score), in_dims=(None, 0))(plain, self.rows)
            flat = torch.cat([slopes[name].reshape(len(self.rows), -1) for name in plain], dim=1)
            self._tangents = flat.cpu().numpy().astype(np.float64) / np.sqrt(self.network.width)
        return self._tangents


def _flat(tensors: Tensors) -> Array:
    """The tensors one after the other, as float64, which holds the bits of every type that networks use."""
    parts = [value.detach().cpu().to(torch.float64).reshape(-1).numpy() for value in tensors.values()]
    return np.concatenate(parts) if parts else np.zeros(0)


def _split(flat: Array, like: Tensors) -> Tensors:
    """Flat numbers as tensors of the shapes, types and devices of `like`."""
    found, at = {}, 0
    for name, value in like.items():
        part = torch.from_numpy(flat[at : at + value.numel()]).reshape(value.shape)
        found[name] = part.to(value.device, value.dtype, copy=True)
        at += value.numel()
    return found
