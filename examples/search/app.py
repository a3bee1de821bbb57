"""The web application, with the six uses of rankloop; the sixth is in page/search.js."""

from __future__ import annotations

from itertools import islice
from math import log1p
from pathlib import Path
from typing import Any

from litestar import Litestar, MediaType, get
from litestar.config.allowed_hosts import AllowedHostsConfig
from litestar.datastructures import ResponseHeader
from litestar.exceptions import NotFoundException
from litestar.params import FromQuery
from litestar.static_files import create_static_files_router

from examples.search.index import Index, Item, split
from rankloop.client import Client

CANDIDATES, SHOWN, PAGE = 50, 10, Path(__file__).parent / "page"
# 1. Features. A plain name is sent with each request, because only the engine knows how well a text matches.
#    The others are declared: the service computes them from its catalog and from clicks.
SENT = ("name match", "summary match", "body match", "imported by")
DECLARED: tuple[dict[str, Any], ...] = (
    {"name": "kind", "kind": "category", "of": "item.kind", "values": ["module", "class", "function", "method"]},
    {"name": "documentation", "kind": "field", "of": "item.words", "log": True},
    {"name": "length", "kind": "field", "of": "item.lines", "log": True},
    {"name": "parameters", "kind": "field", "of": "item.parameters", "log": True},
    {"name": "depth", "kind": "field", "of": "item.depth"},
    {"name": "private", "kind": "field", "of": "item.private"},
    {"name": "clicks today", "kind": "count", "by": "item", "window": "1d"},
    {"name": "clicks per look", "kind": "rate", "by": "item", "window": "all"},
)


class Search:
    """The engine with a ranker behind it, which starts from the engine's own order."""

    def __init__(self, index: Index, client: Client, ranker: str, seed: int = 0) -> None:
        self.index, self.client, self.ranker, self.read = index, client, ranker, (0, 0)
        self.catalog = client.catalog("python")
        spec = {"catalog": "python", "features": [*SENT, *DECLARED], "k": SHOWN, "exposure": "full", "seed": seed}
        self.catalog.put([])  # it must exist before a ranker can name it
        # Nothing is learned from an impression that no browser reported; it is closed after ten minutes.
        client.put_ranker(ranker, spec, silence="ignore", window_seconds=600.0)
        # 2. Proof: one ranking in five is interleaved with the engine's own order.
        if not any(one.kind == "experiment" for one in client.experiments(ranker)):
            client.start_experiment(ranker, "base", share=0.2, note="is it better than the engine's own order?")

    def know(self, new: list[Item], gone: list[str]) -> None:
        """3. Send items to the catalog once, when they are indexed; a request then only names them."""
        self.catalog.delete(gone)
        self.catalog.put(new)

    def find(self, query: str) -> dict[str, Any]:
        """The ranking to show, and the engine's own order."""
        query = " ".join(split(query).lower().split())[:512]  # one query for learning where it is one for the engine
        hits = self.index.search(query, CANDIDATES)
        engine = {
            name: {"name": name, "kind": kind, "summary": summary, "was": place}
            for place, (name, kind, summary, *_) in enumerate(hits, 1)
        }
        own = list(islice(engine.values(), SHOWN))
        matches = [(*hit[3:], log1p(self.index.imported_by.get(hit[0].partition(".")[0], 0))) for hit in hits]
        columns = dict(zip(SENT, zip(*matches, strict=True), strict=False))
        # 4. Candidates in the engine's order, with their text matches; a token for the browser's clicks. If the service
        #    is down or slow, the client returns the engine's order.
        options: dict[str, Any] = {"query": query, "k": SHOWN, "token": True, "explain": True}
        answer = self.client.rank(self.ranker, ids=list(engine), features=columns, **options)
        learned = [  # 5. Explanation: what each feature adds to a score.
            engine[str(item.id)] | {"why": {name: part.contribution for name, part in (item.features or {}).items()}}
            for item in answer.items
        ]
        said = {
            "token": answer.token,
            "impression": answer.impression_id,
            "instead": answer.reason if answer.fallback else None,
        }
        return {"query": query, "engine": own, "learned": learned, "mixed": answer.experiment is not None, **said}

    def state(self) -> dict[str, Any]:
        """Files read, impressions learned, and the state of the experiment."""
        status, trials = self.client.ranker(self.ranker), self.client.experiments(self.ranker)
        trial = next(one for one in trials if one.kind == "experiment")
        return {
            "read": self.read,
            "learned": status.learned_impressions,
            "ready": status.ready,
            "trial": trial,
            "name": self.ranker,
        }


def application(search: Search, hosts: list[str], service: str) -> Litestar:
    """The page and its calls, for these host names only, so that no other site can read this machine's source."""
    ours = f"script-src 'self' {service}; connect-src 'self' {service}"
    policy = f"default-src 'none'; style-src 'self'; img-src data:; {ours}"
    options: dict[str, Any] = {"openapi_config": None, "logging_config": None}

    @get("/", media_type=MediaType.HTML, sync_to_thread=False)
    def home() -> str:
        return (PAGE / "search.html").read_text("utf-8").replace("$service", service)

    @get("/search", sync_to_thread=True)
    def find(q: FromQuery[str]) -> dict[str, Any]:
        return search.find(q)

    @get("/state", sync_to_thread=True)
    def state() -> dict[str, Any]:
        return search.state()

    @get("/entry", sync_to_thread=True)
    def entry(name: FromQuery[str]) -> dict[str, Any]:
        if (found := search.index.show(name)) is None:
            raise NotFoundException(f"there is no {name!r} in the index; search again, it may have been removed")
        source = Path(found[0]).read_text("utf-8", "replace").splitlines()[found[1] - 1 : found[1] + 79]
        return {"name": name, "file": found[0], "line": found[1], "text": found[2].strip(), "source": "\n".join(source)}

    routes: list[Any] = [home, find, state, entry, create_static_files_router("/page", [PAGE])]
    header = ResponseHeader(name="content-security-policy", value=policy)
    return Litestar(routes, allowed_hosts=AllowedHostsConfig(hosts), response_headers=[header], **options)
