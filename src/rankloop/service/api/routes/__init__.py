"""The routes. Handlers are thin: they read the request, call `control` or the engine, and answer."""

from __future__ import annotations

from typing import Any

from rankloop.service.api.routes import calls, catalogs, process, rankers, versions, views
from rankloop.service.api.routes.foreign import FOREIGN

__all__ = ["FOREIGN", "ROUTES"]

ROUTES: list[Any] = [*calls.ROUTES, *rankers.ROUTES, *versions.ROUTES, *views.ROUTES, *catalogs.ROUTES]
ROUTES += [*process.ROUTES]
