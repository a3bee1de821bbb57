"""What the clients do with a catalog, without a network: steps that `rankloop.client` carries out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from rankloop.client.addresses import segment
from rankloop.client.exchange import Call, Exchange, Steps
from rankloop.core.errors import InvalidInput
from rankloop.wire.catalog import CatalogAnswer, CatalogInfo, Emptied, Entry, LineReceipt

LINES, BYTES = 1000, 2**20  # of a call: one that fails is sent again as a whole
Progress = Callable[[int], None]  # lines that have been answered for so far


class CatalogRequests:
    """The items, or the users, of a catalog."""

    def __init__(self, exchange: Exchange, name: str, kind: Literal["items", "users"] = "items") -> None:
        self.exchange, self.name, self.kind = exchange, name, kind
        self._whole = f"/v1/catalogs/{segment('catalog', name)}"
        self._path = f"{self._whole}/{kind}"

    def put(
        self, items: Iterable[Mapping[str, Any] | bytes], on_progress: Progress | None = None
    ) -> Steps[CatalogAnswer]:
        """Add items, or replace all that is known of them; in as many calls as it takes. No items at all make an empty
        catalog, which a ranker can name.

        client.catalog("shop").put([{"id": "hat", "price": 9.0, "brand": "acme"}]).counts

        The answer counts all, and has the receipts of those that were rejected, with their place from 1 on.

        Parameters
        ----------
        items
            Dictionaries with an `id` and fields, or the same as JSON in bytes. Any iterable, however long.
        on_progress
            Called after each call with the number of items answered for.
        """
        return (yield from self._sent("PUT", self._path, items, on_progress))

    def patch(
        self, items: Iterable[Mapping[str, Any] | bytes], on_progress: Progress | None = None
    ) -> Steps[CatalogAnswer]:
        """Change only the fields that are sent; None takes one away."""
        return (yield from self._sent("PATCH", self._path, items, on_progress))

    def delete(self, ids: Iterable[str | int]) -> Steps[CatalogAnswer]:
        """Take items out."""
        return (yield from self._sent("POST", f"{self._path}/delete", ids, None))

    def clear(self) -> Steps[int]:
        """Take all of them out; how many there were."""
        return (yield from self.exchange.act(Emptied, "DELETE", self._path)).deleted

    def get(self, item: str | int) -> Steps[dict[str, Any]]:
        """What is known of one, as it was sent."""
        path = f"{self._path}/{segment('id', str(item))}"
        return (yield from self.exchange.ask(Entry, "GET", path)).fields

    def info(self) -> Steps[CatalogInfo]:
        """How many there are, their fields, the memory they take."""
        return (yield from self.exchange.ask(CatalogInfo, "GET", self._whole))

    def drop(self, force: bool = False) -> Steps[None]:
        """Delete the catalog, items and users; with `force` even if rankers name it."""
        yield from self.exchange.act(type(None), "DELETE", f"{self._whole}?force=true" if force else self._whole)

    def _sent(self, method: str, path: str, lines: Iterable[Any], on_progress: Progress | None) -> Steps[CatalogAnswer]:
        told: list[LineReceipt] = []
        warnings: list[str] = []
        counts: Counter[str] = Counter()
        done = 0
        for some in _portions(lines):
            if any(some):
                reply = yield from self.exchange.exchange(Call(method, path, b"\n".join(some)))
                answer = msgspec.json.decode(reply.body, type=CatalogAnswer)
                counts.update(answer.counts)
                warnings += answer.warnings
                for one in answer.results:
                    if one.status in ("rejected", "unknown"):  # a million that went well need not be kept
                        one.line += done
                        told.append(one)
            done += len(some)
            if on_progress is not None:
                on_progress(done)
        if not done and method == "PUT":  # an empty catalog is made all the same
            yield from self.exchange.exchange(Call(method, path, b"[]"))
        return CatalogAnswer(told, dict(counts), warnings)


def _portions(lines: Iterable[Any]) -> Iterator[list[bytes]]:
    """Lines of JSON, as many as go into a call."""
    if isinstance(lines, str | bytes | Mapping):
        raise InvalidInput(f"items are a {type(lines).__name__}; give a list of them")
    some: list[bytes] = []
    size = 0
    for one in lines:
        try:
            line = one.strip().replace(b"\n", b" ") if isinstance(one, bytes) else msgspec.json.encode(one)
        except (TypeError, msgspec.MsgspecError) as error:
            raise InvalidInput(f"{one!r:.60} cannot be sent as JSON: {error}") from None
        if some and (len(some) == LINES or size + len(line) > BYTES):
            yield some
            some, size = [], 0
        some.append(line)
        size += len(line) + 1
    if some:
        yield some
