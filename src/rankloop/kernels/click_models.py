"""Click models: simulated clicks, and the exact chances of examinations and clicks.

Seven models, four ways to read a list; `ClickParameters` holds the numbers of any of them, for any number of documents.
Documents are numbers into its arrays, ranks count from 0.

- CASCADE: reads from the top, clicks with the document's attraction, leaves after the first click (CM).
- CHAIN: reads from the top; after a click goes on with after_click[document] · patience[rank], after a skipped
  document with after_skip (DCM, SDBN, DBN, CCM).
- POSITION: looks at rank r with examination[r, 0], whatever happened above (PBM, and click-through rates).
- BROWSING: looks at rank r with examination[r, last], where last is the rank of the last click above, counted from 1,
  and 0 where there was none (UBM).

Nothing here allocates, so a compiled loop can call these functions millions of times a second.
"""

from __future__ import annotations

from typing import NamedTuple

from rankloop.kernels._jit import Array, jit

CASCADE, CHAIN, POSITION, BROWSING = 0, 1, 2, 3


class ClickParameters(NamedTuple):
    """A click model's numbers, all float64. What a way of reading does not use is an array of one number."""

    kind: int
    attraction: Array  # (L,) by document
    after_click: Array  # (L,) by document; CASCADE: 0 everywhere
    patience: Array  # (m,) by rank, below which the last one holds
    after_skip: float  # CASCADE: 1
    examination: Array  # (m, 1) by rank, below which the last one holds; BROWSING: (m, m), by rank and last click


@jit
def react(user: ClickParameters, shown: Array, coins: Array, clicks: Array) -> None:
    """Write 1 or 0 into `clicks` (k,) for each of the documents `shown` (k,), top first.

    `coins` are uniform numbers, (2, k). Only CHAIN looks at the second row; for the others (1, k) is enough.
    """
    if user.kind == CASCADE:
        cascade(user.attraction, shown, coins, clicks)
    elif user.kind == CHAIN:
        _chain(user, shown, coins, clicks)
    else:
        browse(user.attraction, user.examination, user.kind == BROWSING, shown, coins, clicks)


@jit
def cascade(attraction: Array, shown: Array, coins: Array, clicks: Array) -> None:
    """`react` of a CASCADE user. Loops that count nanoseconds call it directly: passing all of a user costs more."""
    looking = True
    for r in range(shown.size):
        clicked = looking and coins[0, r] < attraction[shown[r]]
        clicks[r] = clicked
        looking = looking and not clicked


@jit
def _chain(user: ClickParameters, shown: Array, coins: Array, clicks: Array) -> None:
    clicks[:] = 0.0
    for r in range(shown.size):
        clicked = coins[0, r] < user.attraction[shown[r]]
        clicks[r] = clicked
        stay = after_click_at(user, shown[r], r) if clicked else user.after_skip
        if not coins[1, r] < stay:
            break


@jit
def browse(attraction: Array, examination: Array, remembers: bool, shown: Array, coins: Array, clicks: Array) -> None:
    """`react` of a POSITION user, or of a BROWSING one, who remembers the last click."""
    last, lowest = 0, examination.shape[0] - 1
    for r in range(shown.size):
        clicked = coins[0, r] < examination[min(r, lowest), last] * attraction[shown[r]]
        clicks[r] = clicked
        if clicked and remembers:
            last = r + 1


@jit
def after_click_at(user: ClickParameters, document: int, r: int) -> float:
    """The chance that a reader who clicks `document` at rank r goes on to the next rank."""
    return float(user.after_click[document] * user.patience[min(r, user.patience.size - 1)])


@jit
def examination_at(user: ClickParameters, r: int, last: int) -> float:
    """The chance that rank r is looked at when the last click above was at rank `last`, counted from 1; 0 for none."""
    return float(user.examination[min(r, user.examination.shape[0] - 1), last])


@jit
def chances(user: ClickParameters, shown: Array, examined: Array, clicked: Array, last: Array) -> None:
    """Write the exact probabilities that each rank is examined and clicked, both (k,).

    `last` (k + 1,) is work space: the distribution of the last click's rank, counted from 1, or 0 for none.
    """
    if user.kind == CASCADE or user.kind == CHAIN:
        here = 1.0
        for r in range(shown.size):
            attraction = user.attraction[shown[r]]
            examined[r] = here
            clicked[r] = here * attraction
            here *= attraction * after_click_at(user, shown[r], r) + (1.0 - attraction) * user.after_skip
    elif user.kind == POSITION:
        for r in range(shown.size):
            examined[r] = examination_at(user, r, 0)
            clicked[r] = examined[r] * user.attraction[shown[r]]
    else:
        last[0] = 1.0
        for r in range(shown.size):
            attraction = user.attraction[shown[r]]
            examined[r] = 0.0
            for j in range(r + 1):
                here = last[j] * examination_at(user, r, j)
                examined[r] += here
                last[j] -= here * attraction
            clicked[r] = last[r + 1] = examined[r] * attraction


@jit
def expected_clicks(user: ClickParameters, shown: Array, n: int, work: Array) -> float:
    """The exact expected number of clicks in the first n of the list. `work` (3, k + 1) is work space."""
    k = shown.size
    chances(user, shown, work[0, :k], work[1, :k], work[2])
    total = 0.0
    for r in range(min(n, k)):
        total += work[1, r]
    return total


@jit
def conditional(user: ClickParameters, shown: Array, clicks: Array, clicked: Array) -> None:
    """Write the probability of a click at each rank given what the user did above it, (k,).

    Their product, or that of 1 less them where there was no click, is the probability of the page. Where the model
    says that a page cannot be, it goes on as if the rank had been examined.
    """
    if user.kind == CASCADE or user.kind == CHAIN:
        here = 1.0
        for r in range(shown.size):
            attraction = user.attraction[shown[r]]
            clicked[r] = here * attraction
            if clicks[r] > 0:
                here = after_click_at(user, shown[r], r)
            else:
                skipped = 1.0 - clicked[r]
                here = user.after_skip * (here * (1.0 - attraction) / skipped if skipped > 0 else 1.0)
    else:
        last = 0
        for r in range(shown.size):
            clicked[r] = examination_at(user, r, last) * user.attraction[shown[r]]
            if clicks[r] > 0 and user.kind == BROWSING:
                last = r + 1
