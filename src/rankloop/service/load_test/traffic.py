"""What a load test sends, and who clicks on the answers: requests written in advance and a truth to be learned."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from rankloop.clicks.users import TABLES, DependentClickUser
from rankloop.core.errors import UnknownName
from rankloop.core.rng import Rng

TELLING = 10  # features that the truth depends on; few, so that a short test sees learning
GRADES = (0.5, 0.75, 0.9, 0.97)  # shares of candidates below grade 1, 2, 3 and 4
MOST_QUERIES = 200
MOST_BYTES = 64_000_000  # of all prepared requests
NUMBER_BYTES = 8  # a number with its comma: four digits are as many as most logs have


class Traffic:
    """Requests as bytes, in which only the request_id is left open, and a user who knows the true grades.

    A candidate's grade is linear in some of its features and cut into 0 … 4; candidates come in random order, so there
    is everything to learn.

    >>> traffic = Traffic(candidates=5, features=3, k=2, user="perfect")
    >>> b"".join(traffic.request(0, "r-1"))[:44]
    b'{"request_id":"r-1","query":"q0","k":2,"user'
    >>> traffic.clicks(0, ["c0", "c1", "c2", "c3", "c4"])
    ['c3']
    """

    def __init__(
        self,
        *,
        candidates: int,
        features: int,
        k: int,
        by_name: bool = False,
        user: str = "navigational",
        seed: int = 0,
    ) -> None:
        if user not in TABLES:
            raise UnknownName.among("user", user, TABLES)
        size = candidates * features * (NUMBER_BYTES + (len(f'"f{features}":') if by_name else 0))
        self.queries = max(min(MOST_QUERIES, MOST_BYTES // size), 4)
        self.names = [f"f{j}" for j in range(features)]
        self._streams = Rng(seed)
        self._user = DependentClickUser.named(user, 4)
        self._places = {f"c{i}": i for i in range(candidates)}
        rng = self._streams.for_event("load/truth", 0)
        weights = np.zeros(features)
        telling = rng.permutation(features)[:TELLING]
        weights[telling] = rng.choice([-1.0, 1.0], len(telling)) * 0.8 ** np.arange(len(telling))
        scores = np.empty((self.queries, candidates))
        self._rest = []
        for q in range(self.queries):
            rows = self._streams.for_event("load/features", q).random((candidates, features)).round(4)
            scores[q] = rows @ weights
            self._rest.append(self._encoded(q, rows.tolist(), k, by_name))
        cuts = np.quantile(scores, GRADES)
        self._grades = np.searchsorted(cuts, scores, side="right")
        self.clicks(0, ["c0"])  # compiles the kernel now, not while the clock runs

    def _encoded(self, q: int, rows: Sequence[list[float]], k: int, by_name: bool) -> bytes:
        listed = [
            {"id": item, "features": dict(zip(self.names, row, strict=True)) if by_name else row}
            for item, row in zip(self._places, rows, strict=True)
        ]
        return msgspec.json.encode({"query": f"q{q}", "k": k, "user": f"load-{q}", "candidates": listed})[1:]

    def request(self, n: int, request_id: str) -> tuple[bytes, bytes]:
        """The body of request `n`, in two parts."""
        return f'{{"request_id":"{request_id}",'.encode(), self._rest[n % self.queries]

    def clicks(self, n: int, shown: Sequence[str]) -> list[str]:
        """What the user clicks on in the answer to request `n`."""
        grades = self._grades[n % self.queries, [self._places[item] for item in shown]]
        clicked = self._user.react(grades, self._streams.for_event("load/clicks", n)).values
        return [item for item, click in zip(shown, clicked, strict=True) if click]

    def pause(self, n: int, share: float, think_ms: tuple[float, float]) -> float | None:
        """Seconds until the user of request `n` reports; None for the share that never does."""
        leaves, thinks = self._streams.for_event("load/pauses", n).random(2)
        return None if leaves >= share else (think_ms[0] + thinks * (think_ms[1] - think_ms[0])) / 1000
