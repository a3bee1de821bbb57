"""The routes, a file a subject. Handlers are thin: they read the request, ask, and say what comes back."""

from __future__ import annotations

from typing import Any

from rankloop.service.api.routes import catalogs, experiments, metarank, personalizer, ubi, watch
from rankloop.service.api.routes.audit import list_changes
from rankloop.service.api.routes.calls import beacon, feedback, rank
from rankloop.service.api.routes.process import (
    beacon_script,
    docs,
    get_own_key,
    get_service,
    healthz,
    metrics,
    openapi,
    readyz,
    status_page,
)
from rankloop.service.api.routes.rankers import delete_ranker, get_ranker, list_rankers, patch_ranker, put_ranker, warm
from rankloop.service.api.routes.users import erase_user, export_user
from rankloop.service.api.routes.versions import ACTIONS, get_export, get_lineage, keep_version, list_versions

ROUTES: list[Any] = [rank, feedback, beacon]
ROUTES += [put_ranker, patch_ranker, list_rankers, get_ranker, delete_ranker]
ROUTES += [list_versions, keep_version, get_lineage, get_export]
ROUTES += [*watch.ROUTES, *experiments.ROUTES, *catalogs.ROUTES]
ROUTES += [*ACTIONS, warm, export_user, erase_user, list_changes]
ROUTES += [get_service, get_own_key, healthz, readyz, metrics, openapi, docs, status_page]
ROUTES += [beacon_script]

# The paths of other systems, by the name that the setting `adapters` calls each.
FOREIGN: dict[str, list[Any]] = {"metarank": metarank.ROUTES, "personalizer": personalizer.ROUTES, "ubi": ubi.ROUTES}
