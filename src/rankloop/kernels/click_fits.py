"""Click models over whole logs: scores, simulated pages, and the expected counts of expectation maximization.

A log is `shown` (s, K), the number of the query-document pair at each rank, of which the first lengths[i] (s,) count in
page i, and `clicks` (s, K). Sums go page by page and rank by rank, so a fit repeats bit for bit.
"""

from __future__ import annotations

import numpy as np

from rankloop.kernels._jit import Array, jit
from rankloop.kernels.click_models import ClickParameters, chances, conditional, react

SATISFIED, UNSATISFIED, SKIPPED = 0, 1, 2  # the rows of `flow`


@jit
def react_pages(user: ClickParameters, shown: Array, lengths: Array, coins: Array, clicks: Array) -> None:
    """Write new clicks for every page; `coins` (s, 2, K)."""
    for i in range(lengths.size):
        react(user, shown[i, : lengths[i]], coins[i], clicks[i, : lengths[i]])


@jit
def score_pages(
    user: ClickParameters, shown: Array, lengths: Array, clicks: Array, floor: float
) -> tuple[Array, Array, Array, float, int]:
    """How well a model predicts a log: pages, bits and conditional bits by rank (K,), log-likelihood, impossible pages.

    Bits are the sums of -log2 of the probability given to what happened at the rank: first as predicted before the page
    was shown, then given the clicks above. Probabilities are kept `floor` away from 0 and 1; a page that the model
    holds for impossible is counted, and costs what the floor says.
    """
    ranks = shown.shape[1]
    pages, bits, conditional_bits = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
    examined, before, given, last = np.empty(ranks), np.empty(ranks), np.empty(ranks), np.empty(ranks + 1)
    total, impossible = 0.0, 0
    for i in range(lengths.size):
        n = lengths[i]
        chances(user, shown[i, :n], examined[:n], before[:n], last)
        conditional(user, shown[i, :n], clicks[i, :n], given[:n])
        possible = True
        for r in range(n):
            clicked = clicks[i, r] > 0
            pages[r] += 1.0
            bits[r] -= np.log2(_within(before[r] if clicked else 1.0 - before[r], floor))
            here = given[r] if clicked else 1.0 - given[r]
            possible = possible and here > 0.0
            here = np.log(_within(here, floor))
            conditional_bits[r] -= here / np.log(2.0)
            total += here
        if not possible:
            impossible += 1
    return pages, bits, conditional_bits, total, impossible


@jit
def _within(chance: float, floor: float) -> float:
    return min(max(chance, floor), 1.0 - floor)


@jit
def shown_and_clicked(shown: Array, lengths: Array, clicks: Array, until: int, pairs: int) -> tuple[Array, Array]:
    """(P,) how often each pair was read and clicked, for readers who stop at their first click (`until` 1), at their
    last one (2) or never (0). Without a click everything was read; a click below the stop does not count.
    """
    read, clicked = np.zeros(pairs), np.zeros(pairs)
    for i in range(lengths.size):
        end = lengths[i]
        for r in range(lengths[i]):
            if until > 0 and clicks[i, r] > 0:
                end = r + 1
                if until == 1:
                    break
        for r in range(end):
            read[shown[i, r]] += 1.0
            clicked[shown[i, r]] += clicks[i, r]
    return read, clicked


@jit
def last_clicks(shown: Array, lengths: Array, clicks: Array, by_rank: bool, size: int) -> tuple[Array, Array]:
    """How often a click was the last of its page, and how many clicks there were: by pair, or by rank."""
    last, total = np.zeros(size), np.zeros(size)
    for i in range(lengths.size):
        place = -1
        for r in range(lengths[i]):
            if clicks[i, r] > 0:
                place = r if by_rank else shown[i, r]
                total[place] += 1.0
        if place >= 0:
            last[place] += 1.0
    return last, total


@jit
def browsing_shows(lengths: Array, clicks: Array, columns: int) -> Array:
    """(K, columns) how often each rank was reached with each last click above it; one column ignores clicks."""
    shows = np.zeros((clicks.shape[1], columns))
    for i in range(lengths.size):
        last = 0
        for r in range(lengths[i]):
            shows[r, last] += 1.0
            if clicks[i, r] > 0 and columns > 1:
                last = r + 1
    return shows


@jit
def browsing_counts(
    attraction: Array,
    examination: Array,
    shown: Array,
    lengths: Array,
    clicks: Array,
    attracted: Array,
    examined: Array,
) -> float:
    """One expectation step of the position-based and the browsing model; the log-likelihood.

    Writes how often each pair is expected to have attracted (P,) and each rank to have been examined, by last click as
    in `examination`. Both are certain where there was a click.
    """
    attracted[:] = 0.0
    examined[:] = 0.0
    total = 0.0
    for i in range(lengths.size):
        last = 0
        for r in range(lengths[i]):
            pair = shown[i, r]
            attractive, seen = attraction[pair], examination[r, last]
            if clicks[i, r] > 0:
                attracted[pair] += 1.0
                examined[r, last] += 1.0
                total += np.log(attractive * seen)
                if examination.shape[1] > 1:
                    last = r + 1
            else:
                nothing = 1.0 - attractive * seen
                attracted[pair] += attractive * (1.0 - seen) / nothing
                examined[r, last] += seen * (1.0 - attractive) / nothing
                total += np.log(nothing)
    return total


@jit
def chain_counts(
    attraction: Array,
    satisfaction: Array,
    by_rank: bool,
    stay: Array,
    shown: Array,
    lengths: Array,
    clicks: Array,
    examined: Array,
    satisfied: Array,
    asked: Array,
    flow: Array,
) -> float:
    """One expectation step of the models that read from the top; the log-likelihood.

    A reader clicks with `attraction` of the pair (P,). Clicks satisfy with `satisfaction` of the pair, or
    of the rank where `by_rank`. The next rank is then read with stay[SATISFIED], stay[UNSATISFIED] or, after no click,
    stay[SKIPPED].

    Writes expected counts: how often each pair was `examined` (P,); `satisfied` among the clicks `asked` about it, both
    shaped like `satisfaction`; and flow (3, 2), how often a reader went on among how often one could. Nobody goes on
    from the end of a page, so clicks there tell nothing about satisfaction and are not asked.
    """
    examined[:] = 0.0
    satisfied[:] = 0.0
    asked[:] = 0.0
    flow[:] = 0.0
    quiet = np.empty(shown.shape[1] + 1)  # probability of no click from rank r on, for one who reads rank r
    total = 0.0
    for i in range(lengths.size):
        n = lengths[i]
        last = -1
        for r in range(n):
            if clicks[i, r] > 0:
                last = r
        for r in range(last + 1):  # all of these were examined
            pair = shown[i, r]
            examined[pair] += 1.0
            if clicks[i, r] > 0:
                total += np.log(attraction[pair])
            else:
                total += np.log(1.0 - attraction[pair])
            if r < last and clicks[i, r] == 0:
                total += np.log(stay[SKIPPED])
                flow[SKIPPED, 0] += 1.0
                flow[SKIPPED, 1] += 1.0
        quiet[n] = 1.0
        for r in range(n - 1, last, -1):
            onwards = quiet[r + 1] if r == n - 1 else 1.0 - stay[SKIPPED] + stay[SKIPPED] * quiet[r + 1]
            quiet[r] = (1.0 - attraction[shown[i, r]]) * onwards
        reads = 1.0  # probability that rank last + 1 is read, given the page
        for r in range(min(last + 1, n - 1)):
            if clicks[i, r] > 0:
                place = r if by_rank else shown[i, r]
                content = satisfaction[place]
                # probability of what follows for one who goes on, and for one who stops
                on, off = (1.0, 0.0) if r < last else (quiet[r + 1], 1.0)
                happy = content * (stay[SATISFIED] * on + (1.0 - stay[SATISFIED]) * off)
                unhappy = (1.0 - content) * (stay[UNSATISFIED] * on + (1.0 - stay[UNSATISFIED]) * off)
                whole = happy + unhappy
                total += np.log(whole)
                satisfied[place] += happy / whole
                asked[place] += 1.0
                happy_on = content * stay[SATISFIED] * on / whole
                unhappy_on = (1.0 - content) * stay[UNSATISFIED] * on / whole
                flow[SATISFIED, 0] += happy_on
                flow[SATISFIED, 1] += happy / whole
                flow[UNSATISFIED, 0] += unhappy_on
                flow[UNSATISFIED, 1] += unhappy / whole
                reads = happy_on + unhappy_on
        if last < 0:
            total += np.log(quiet[0])
        if last < n - 1:
            for r in range(last + 1, n):
                examined[shown[i, r]] += reads
                if r < n - 1:
                    on = stay[SKIPPED] * quiet[r + 1]
                    on /= 1.0 - stay[SKIPPED] + on
                    flow[SKIPPED, 0] += reads * on
                    flow[SKIPPED, 1] += reads
                    reads *= on
    return total
