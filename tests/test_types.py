"""Candidates and feedback are checked where they enter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankloop.core.errors import InvalidInput
from rankloop.core.types import Candidates, Feedback, Impression


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "neither items nor features"),
        ({"items": []}, "give a list of at least one id"),
        ({"items": [[1, 2]]}, "items have shape (1, 2)"),
        ({"items": [1.5, 2.5]}, "ids must all be integers or all be strings"),
        ({"items": ["a", "b", "a"]}, "item 'a' occurs twice"),
        ({"items": [3, 1, 3]}, "item 3 occurs twice"),
        ({"items": [1, "a"]}, "ids must all be integers"),
        ({"items": [[1], [2, 3]]}, "lists of different lengths"),
        ({"items": np.array([2**63], dtype=np.uint64)}, "ids must all be integers of 64 bits"),
        ({"features": [[1e200]]}, "features must lie within ±1e+100"),
        ({"features": [[0.0, 1.0], [-1.5e100, 0.0]]}, "features[1, 0] is -1.5e+100; features must lie within"),
        ({"items": [1, 2], "features": [[1.0]]}, "2 items but 1 feature rows"),
        ({"features": [[1.0, np.nan]]}, "features[0, 1] is nan"),
        ({"features": [[1.0], [np.inf]]}, "features[1, 0] is inf"),
        ({"features": [["red"]]}, "features are not a table of numbers"),
        ({"features": [[1.0], [1.0, 2.0]]}, "features are not a table of numbers"),
        ({"features": [1.0, 2.0]}, "features have shape (2,)"),
        ({"features": np.zeros((0, 3))}, "features have shape (0, 3)"),
        ({"features": np.zeros((3, 0))}, "features have shape (3, 0)"),
    ],
)
def test_bad_candidates_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Candidates("q", **arguments)
    assert words in str(raised.value)


def test_what_the_caller_does_with_its_arrays_later_changes_nothing() -> None:
    rows, ids = np.random.default_rng(0).random((4, 3)), np.arange(4)
    made = Candidates("q", ids, rows)
    rows[0, 0], ids[0] = np.nan, 7
    assert made.features is not None
    assert np.isfinite(made.features).all()
    assert made.items.tolist() == [0, 1, 2, 3]
    given = np.eye(2)
    assert Candidates.without_copy("q", None, given).features is given  # an owner may give its array away
    with pytest.raises(InvalidInput, match=r"features\[0, 0\] is nan"):
        Candidates.without_copy("q", None, np.full((1, 1), np.nan))  # but not unchecked


def test_ids_as_objects() -> None:
    """What numpy makes of a pandas column of strings; and the true reason where ids are refused."""
    assert Candidates("q", np.array(["b", "aa"], dtype=object)).items.tolist() == ["b", "aa"]
    assert Candidates("q", np.array([3, np.int64(1)], dtype=object)).items.dtype == np.int64
    assert Candidates("q", [np.str_("b"), "aa"]).items.dtype.kind == "U"
    assert Candidates("q", ("b", "aa")).items.tolist() == ["b", "aa"]
    for items, words in [
        (np.array(["a", None], dtype=object), "items[1] is None: missing"),
        (
            np.array([1, "a"], dtype=object),
            "items[0] is 1, but items[1] is 'a'; ids must all be integers or all be strings",
        ),
        (["a", 1], "items[0] is 'a', but items[1] is 1"),
        ([1.0, float("nan")], "items[0] is 1.0, a float"),
        ([True, False], "items[0] is True, a bool"),
        ([b"a"], "items[0] is b'a', a bytes"),
        ([2**70], "integers of 64 bits"),
    ]:
        with pytest.raises(InvalidInput) as raised:
            Candidates("q", items)  # type: ignore[arg-type]
        assert words in str(raised.value), items


def test_clicks_by_id() -> None:
    shown = Impression("q", np.array([2, 0]), np.array(["c", "a"]), None, {})
    assert Feedback.clicked(shown, ["a"]).values.tolist() == [0.0, 1.0]
    assert Feedback.clicked(shown, []).values.tolist() == [0.0, 0.0]
    with pytest.raises(InvalidInput, match="clicked but not shown: 'b'"):
        Feedback.clicked(shown, ["a", "b"])
