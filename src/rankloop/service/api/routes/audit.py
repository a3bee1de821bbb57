"""The route of the audit list."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, get
from litestar.params import Parameter

from rankloop.service.access.keys import Key
from rankloop.service.api.routes._shared import needs, problems
from rankloop.service.serving.engine import Engine
from rankloop.service.storage import audit
from rankloop.wire.audit import Change
from rankloop.wire.basics import NAME

Most = Annotated[int, Parameter(ge=1, le=1000, description="how many")]
Of = Annotated[str | None, Parameter(pattern=NAME, max_length=64, description="only those of this ranker")]


@get("/v1/audit", guards=[needs("admin")], tags=["operations"], summary="Who changed what", responses=problems(400))
async def list_changes(request: Request[Any, Any, Any], limit: Most = 100, ranker: Of = None) -> list[Change]:
    """The newest first: rankers made, changed and deleted, versions promoted and rolled back, experiments, keys, users
    forgotten. By the name of the key; of the rankers that yours is for."""
    engine: Engine = request.app.state.engine
    key: Key = request.state.key
    if ranker is not None:
        key.require_ranker(ranker)
    wanted = key.rankers if ranker is None else {ranker}
    found = await engine.reads.run(engine.database.read, lambda c: audit.listed(c, limit, wanted))
    return [Change(*one) for one in found]
