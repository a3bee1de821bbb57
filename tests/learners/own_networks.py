"""PyTorch modules as users write them, registered by name for the tests."""

from __future__ import annotations

from typing import Any

import torch

from rankloop.learners.models.networks import register

torch.set_num_threads(1)  # one thread gives the same bits every time, and two test processes share two cores


class Doubled(torch.nn.Module):
    """The built-in network as the paper prints it, on doubled input."""

    def __init__(self, features: int, width: int, weights: Any) -> None:
        super().__init__()
        split = width * features
        hidden = torch.tensor(weights[:split].reshape(width, features))
        self.first = torch.nn.Parameter(torch.cat([hidden, hidden], dim=1))
        self.last = torch.nn.Parameter(torch.tensor(weights[split:]))

    def forward(self, rows: Any) -> Any:
        doubled = torch.cat([rows, rows], dim=-1) / 2**0.5
        return torch.relu(doubled @ self.first.T) @ self.last * self.last.numel() ** 0.5


class Small(torch.nn.Module):
    """Two layers with a batch norm between them, whose statistics are buffers."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(features, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Tanh()
        )
        self.head = torch.nn.Linear(8, 1)

    def forward(self, rows: Any) -> Any:
        return self.head(self.body(rows)).squeeze(-1)


register("small", Small)
