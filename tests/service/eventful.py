"""A store after an eventful life: versions kept, learning paused, rolled back, reset; for tests of the past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankloop.core import codec
from tests.service.app_fixtures import Service, fine, items, names, teach

LEARNER: dict[str, Any] = {"learner": "pairrank", "parameters": {"pairs": "matched"}}  # draws when it learns


def same_bits(learner: Any, state: bytes) -> bool:
    """Whether a learner is in a stored state."""
    stored, found = codec.loads(state)[0], learner.state()
    return stored.keys() == found.keys() and all(stored[name].tobytes() == found[name].tobytes() for name in found)


class Shop:
    """A store after an eventful life, and the states the service had on the way."""

    exported: Path | None = None

    def __init__(self, url: str) -> None:
        self.url = url
        self.states: dict[int, bytes] = {}  # version -> what was served when it was kept
        path: Any = url
        with Service(path, snapshot_seconds=0.2) as service:
            service.ready().put("shop", features=names(3), exposure="full", **LEARNER, seed=5)
            teach(service, "shop", 8)
            self.keep(service)
            teach(service, "shop", 6, seed=20)
            service.act("shop", "pause")
            service.report(service.rank("shop", items(5, seed=99)), ["i1"])
            service.settle("shop")
            service.act("shop", "resume")
            teach(service, "shop", 5, seed=40)
            self.keep(service)
            service.act("shop", "rollback", version=1)  # keeps v3: what was before
            self.states[3] = self.states[2]
            teach(service, "shop", 7, seed=60)
            self.keep(service)  # v4
            self.before_reset = service.state("shop")
            service.act("shop", "reset")  # keeps v5
            self.states[5] = self.before_reset
            service.put("shop", features=names(2), exposure="bounded", **LEARNER, seed=6)
            teach(service, "shop", 9, width=2, seed=80)
            self.keep(service)  # v6
            teach(service, "shop", 3, width=2, seed=120)
            self.last = service.state("shop")

    def keep(self, service: Service) -> None:
        self.states[fine(service.http.post("/v1/rankers/shop/versions"))["version"]] = service.state("shop")
