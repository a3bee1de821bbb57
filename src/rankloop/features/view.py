"""What is known when a list is made: the request, and what tables have of its candidates and its user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rankloop.features.table import Table


class Request(NamedTuple):
    """A request to rank, as features see it."""

    ids: Sequence[str | int]
    query: str = ""
    user: str | None = None
    time: float = 0.0  # Unix seconds
    fields: Mapping[str, Any] = {}  # of the request


class View:
    """A request with what is known of its candidates."""

    def __init__(self, request: Request, items: Table) -> None:
        self.request, self.items = request, items
        self.rows = items.rows(request.ids)
        self.unknown = int(np.count_nonzero(self.rows < 0))
