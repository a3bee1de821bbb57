"""Simulated users click as their tables and closed forms say."""

from __future__ import annotations

import numpy as np
import pytest

from rankloop.clicks.dependent import TABLES, DependentClickUser
from rankloop.errors import InvalidInput, InvalidParameter, UnknownName
from rankloop.lab.users import open_user
from rankloop.streams import Streams
from rankloop.types import Array

ROUNDS = 20_000


def click_rates(user: DependentClickUser, grades: Array) -> Array:
    streams = Streams(1)
    clicks = [user.react(grades, streams.at("user", t)).values for t in range(ROUNDS)]
    return np.asarray(np.mean(clicks, axis=0))


def expected_rates(user: DependentClickUser, grades: Array) -> Array:
    """P(click at p) = click[g_p] · Π over the positions above of the chance to go on."""
    click, stop = np.array(user.click)[grades], np.array(user.stop)[grades]
    leave = click * stop if user.stop_requires_click else stop
    return np.asarray(click * np.concatenate([[1.0], np.cumprod(1.0 - leave)[:-1]]))


@pytest.mark.parametrize("stop_requires_click", [True, False])
@pytest.mark.parametrize(
    ("name", "highest"), [(name, highest) for name, tables in TABLES.items() for highest in tables]
)
def test_click_rates_follow_the_closed_form(name: str, highest: int, stop_requires_click: bool) -> None:
    user = DependentClickUser.named(name, highest, stop_requires_click=stop_requires_click)
    grades = np.array([0, highest, 1, 0, highest, 1])
    expected = expected_rates(user, grades)
    slack = 4 * np.sqrt(expected * (1 - expected) / ROUNDS)  # four standard errors
    assert (np.abs(click_rates(user, grades) - expected) <= slack).all()


def test_the_published_stop_rule_halves_what_a_navigational_user_sees() -> None:
    """About 7 of 10 documents with the papers' rule, 3.4 with the published code's (grades spread as in MSLR)."""
    grades = np.array([0, 1, 0, 2, 0, 1, 0, 1, 3, 0])
    seen = {}
    for rule in (True, False):
        user = DependentClickUser.named("navigational", 4, stop_requires_click=rule)
        click, stop = np.array(user.click)[grades], np.array(user.stop)[grades]
        go_on = 1.0 - (click * stop if rule else stop)
        seen[rule] = 1.0 + np.cumprod(go_on)[:-1].sum()
    assert seen[True] > 6.5
    assert seen[False] < 4.0


def test_specs() -> None:
    assert open_user("navigational", 4).click == (0.05, 0.3, 0.5, 0.7, 0.95)
    assert open_user("informational", 3).click == (0.4, 0.6, 0.7, 0.8, 0.9)  # the smallest table that covers 0-3
    assert not open_user("perfect?stop_requires_click=false", 1).stop_requires_click


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("navigatoinal", UnknownName, "did you mean 'navigational'"),
        ("perfect?patience=3", InvalidParameter, "has no option 'patience'; it has stop_requires_click"),
        ("perfect?stop_requires_click=maybe", InvalidParameter, "must be true or false"),
    ],
)
def test_bad_specs_are_named(spec: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        open_user(spec, 4)


def test_grades_off_the_table_are_named() -> None:
    with pytest.raises(InvalidParameter, match="knows grades up to 4, but the data has grade 7"):
        open_user("perfect", 7)
    with pytest.raises(InvalidInput, match=r"grades \[9\]; this user knows 0 to 1"):
        DependentClickUser.named("perfect", 1).react(np.array([9]), np.random.default_rng(0))
    with pytest.raises(InvalidParameter, match=r"probability 1\.5"):
        DependentClickUser((0.0, 1.5), (0.0, 0.0))
