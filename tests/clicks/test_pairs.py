"""Numbers of query-document pairs, against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankloop.clicks import Pairs

NAMES = st.sampled_from(["", "a", "aa", "b", "é", "10", "2", "x y", "long name"])
PAIRS = st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=12)


def made(pairs: list[tuple[str, str]]) -> Pairs:
    return Pairs.of([query for query, _ in pairs], [document for _, document in pairs])


@given(PAIRS, PAIRS)
def test_every_pair_is_found_and_no_other(known: list[tuple[str, str]], asked: list[tuple[str, str]]) -> None:
    pairs = made(known)
    queries, documents = pairs.names()
    numbers = {pair: i for i, pair in enumerate(zip(queries.tolist(), documents.tolist(), strict=True))}
    assert set(numbers) == set(known)
    assert len(pairs) == len(numbers)
    unknown = len(numbers)
    for query, document in asked:
        assert pairs.find(query, [document]).tolist() == [numbers.get((query, document), unknown)]
    for query in {query for query, _ in asked}:
        of_query = sorted(document for other, document in numbers if other == query)
        assert pairs.documents_of(query).tolist() == of_query
    others = made(asked)
    names = zip(*(part.tolist() for part in others.names()), strict=True)
    assert pairs.numbers_of(others).tolist() == [numbers.get(pair, unknown) for pair in names]
