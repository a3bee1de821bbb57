"""Click models as stories told in plain Python, and everything else by going through all ways a story can end.

Each `story` asks for coins, coin(p) is true with probability p, and returns what happened on a page. `endings` tries
every answer to every coin. Written from Chuklin, Markov & de Rijke, Click Models for Web Search (2015), chapter 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

Coin = Callable[[float], bool]
Floats = Sequence[float]


class Happened(NamedTuple):
    examined: tuple[bool, ...]
    attracted: tuple[bool, ...]  # would be clicked if it were examined; only asked where the model has the coin
    clicks: tuple[bool, ...]
    satisfied: tuple[bool | None, ...]  # None: nobody asked
    went_on: tuple[bool | None, ...]


Story = Callable[[Coin], Happened]


def endings(story: Story) -> Iterator[tuple[float, Happened]]:
    """Every way the story can go, with its probability."""
    waiting: list[tuple[bool, ...]] = [()]
    while waiting:
        answers = waiting.pop()
        asked: list[float] = []

        def coin(p: float, answers: tuple[bool, ...] = answers, asked: list[float] = asked) -> bool:
            asked.append(p)
            return answers[len(asked) - 1] if len(asked) <= len(answers) else False

        happened = story(coin)
        path = (*answers, *[False] * (len(asked) - len(answers)))
        probability = 1.0
        for answer, p in zip(path, asked, strict=True):
            probability *= p if answer else 1.0 - p
        yield probability, happened
        waiting += [(*path[:i], True) for i in range(len(answers), len(path))]


def top_down(
    attraction: Floats, satisfaction: Floats, after_satisfied: float, after_unsatisfied: float, after_skip: float
) -> Story:
    """Reads from the top. After a click the user is satisfied or not, and goes on with a chance that depends on it."""

    def story(coin: Coin) -> Happened:
        k = len(attraction)
        examined, clicks = [False] * k, [False] * k
        satisfied: list[bool | None] = [None] * k
        went_on: list[bool | None] = [None] * k
        for r in range(k):
            examined[r] = True
            clicks[r] = coin(attraction[r])
            if clicks[r]:
                happy = satisfied[r] = coin(satisfaction[r])
                on = coin(after_satisfied if happy else after_unsatisfied)
            else:
                on = coin(after_skip)
            went_on[r] = on
            if not on:
                break
        return Happened(tuple(examined), tuple(clicks), tuple(clicks), tuple(satisfied), tuple(went_on))

    return story


def cascade(attraction: Floats) -> Story:
    """Leaves after the first click."""
    return top_down(attraction, [1.0] * len(attraction), 0.0, 0.0, 1.0)


def dependent_click(attraction: Floats, stop: Floats) -> Story:
    """After a click at rank r, leaves with stop[r]."""
    return top_down(attraction, stop, 0.0, 1.0, 1.0)


def simplified_dbn(attraction: Floats, satisfaction: Floats) -> Story:
    """Leaves when satisfied."""
    return top_down(attraction, satisfaction, 0.0, 1.0, 1.0)


def dynamic_bayesian(attraction: Floats, satisfaction: Floats, continuation: float) -> Story:
    """Leaves when satisfied, or out of patience."""
    return top_down(attraction, satisfaction, 0.0, continuation, continuation)


def click_chain(attraction: Floats, skipped: float, irrelevant: float, relevant: float) -> Story:
    """Relevant with the same chance as attractive."""
    return top_down(attraction, attraction, relevant, irrelevant, skipped)


def browsing(attraction: Floats, examination: Callable[[int, int | None], float]) -> Story:
    """Looks at rank r with examination(r, rank of the last click above or None); attraction is a coin of its own."""

    def story(coin: Coin) -> Happened:
        last = None
        examined, attracted = [], []
        for r, chance in enumerate(attraction):
            examined.append(coin(examination(r, last)))
            attracted.append(coin(chance))
            if examined[-1] and attracted[-1]:
                last = r
        clicks = tuple(e and a for e, a in zip(examined, attracted, strict=True))
        return Happened(tuple(examined), tuple(attracted), clicks, (None,) * len(clicks), (None,) * len(clicks))

    return story


def position_based(attraction: Floats, examination: Floats) -> Story:
    """Looks at rank r with examination[r]."""
    return browsing(attraction, lambda r, _: examination[r])


# -- what follows from a story -------------------------------------------------------------------------------------


def examined_and_clicked(story: Story) -> tuple[list[float], list[float]]:
    """The chance that each rank is examined, and that it is clicked."""
    ways = list(endings(story))
    k = len(ways[0][1].clicks)
    examined = [sum(p for p, happened in ways if happened.examined[r]) for r in range(k)]
    return examined, [sum(p for p, happened in ways if happened.clicks[r]) for r in range(k)]


def page_chances(story: Story) -> dict[tuple[bool, ...], float]:
    """The probability of every click vector."""
    found: dict[tuple[bool, ...], float] = defaultdict(float)
    for p, happened in endings(story):
        found[happened.clicks] += p
    return found


def conditional(story: Story, clicks: Sequence[bool]) -> list[float | None]:
    """The chance of a click at each rank given the clicks above; None where they cannot be."""
    pages = page_chances(story)
    found: list[float | None] = []
    for r in range(len(clicks)):
        above = sum(p for page, p in pages.items() if page[:r] == tuple(clicks[:r]))
        here = sum(p for page, p in pages.items() if page[: r + 1] == (*clicks[:r], True))
        found.append(here / above if above > 0 else None)
    return found


def posterior(story: Story, clicks: Sequence[bool]) -> list[tuple[float, Happened]]:
    """All stories that end in these clicks, with their probability given them."""
    ways = [(p, happened) for p, happened in endings(story) if happened.clicks == tuple(clicks) and p > 0]
    whole = sum(p for p, _ in ways)
    return [(p / whole, happened) for p, happened in ways]


def expected_counts(
    stories: Sequence[Story], pages: Sequence[Sequence[bool]], documents: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """What the complete data would be expected to count, over pages, each with its own story.

    By document: `examined`, `attracted`, `shown`. By (document, rank): `satisfied` and `asked`, for clicks that are not
    at a page's end. `flow`: state -> [went on, could], states satisfied, unsatisfied and skipped.
    """
    by_document: dict[str, dict[int, float]] = {name: defaultdict(float) for name in ("examined", "attracted", "shown")}
    looks: dict[tuple[int, int | None], list[float]] = defaultdict(lambda: [0.0, 0.0])
    satisfied: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    flow = {state: [0.0, 0.0] for state in ("satisfied", "unsatisfied", "skipped")}
    for story, clicks, shown in zip(stories, pages, documents, strict=True):
        for p, happened in posterior(story, clicks):
            last = None
            for r, document in enumerate(shown):
                by_document["shown"][document] += p
                by_document["examined"][document] += p * happened.examined[r]
                by_document["attracted"][document] += p * happened.attracted[r]
                looks[r, last][0] += p * happened.examined[r]
                looks[r, last][1] += p
                if happened.clicks[r]:
                    last = r
                if not happened.examined[r] or r == len(shown) - 1:
                    continue
                state = {True: "satisfied", False: "unsatisfied", None: "skipped"}[happened.satisfied[r]]
                flow[state][0] += p * bool(happened.went_on[r])
                flow[state][1] += p
                if happened.clicks[r]:
                    satisfied[document, r][0] += p * bool(happened.satisfied[r])
                    satisfied[document, r][1] += p
    return {**by_document, "looks": looks, "satisfied": satisfied, "flow": flow}
