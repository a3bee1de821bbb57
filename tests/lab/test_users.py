"""Simulated users click as their tables and closed forms say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankloop.clicks import Pairs, PositionBased, save
from rankloop.clicks.users import TABLES, DependentClickUser, GradedUser, open_user
from rankloop.core.errors import CodecError, InvalidInput, InvalidParameter, UnknownName
from rankloop.core.registry import make
from rankloop.core.rng import Rng
from rankloop.core.types import Array
from rankloop.lab.datasets.dataset import Split
from rankloop.lab.datasets.sources import open_split
from rankloop.lab.runs.interleave import interleave
from rankloop.lab.runs.simulate import simulate
from rankloop.lab.runs.trial import Trial, run
from rankloop.lab.worlds.world import Stationary

ROUNDS = 20_000


def click_rates(user: DependentClickUser, grades: Array) -> Array:
    streams = Rng(1)
    clicks = [user.react(grades, streams.for_event("user", t)).values for t in range(ROUNDS)]
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


@pytest.mark.parametrize("table", TABLES)
def test_users_of_click_models_follow_the_closed_forms(table: str) -> None:
    """Cascade: nobody reads past a click. Position-based: (1/rank)^eta looks. DBN: impatient after every document."""
    grades = np.array([0, 4, 1, 0, 3, 1])
    plain = DependentClickUser.named(table, 4)
    click, stop = np.array(plain.click)[grades], np.array(plain.stop)[grades]
    ranks = np.arange(1, 7)
    onwards = 0.7 * (1 - click * stop)
    expected = {
        f"cascade?table={table}": click * np.append(1.0, np.cumprod(1 - click)[:-1]),
        f"pbm?eta=0.5&table={table}": click / np.sqrt(ranks),
        f"dbn?gamma=0.7&table={table}": click * np.append(1.0, np.cumprod(onwards)[:-1]),
        f"dbn?gamma=1&table={table}": expected_rates(plain, grades),
    }
    for spec, rates in expected.items():
        user = open_user(spec, 4)
        assert isinstance(user, GradedUser)
        assert user.stop_requires_click is None
        streams = Rng(1)
        found = np.mean([user.react(grades, streams.for_event("user", t)).values for t in range(5000)], axis=0)
        assert (np.abs(found - rates) <= 4 * np.sqrt(rates * (1 - rates) / 5000) + 1e-12).all(), spec


def test_a_fitted_user_clicks_by_query_and_item_in_the_loop(tmp_path: Path) -> None:
    """Item i of query q is clicked at rank 1 with its own probability; the grades of the data do not count."""
    split = open_split("synthetic:mq2008?queries=3&vali=1&test=1")
    names = [(str(q), str(i)) for n, q in enumerate(split.train.queries) for i in range(len(split.train.grades_of(n)))]
    pairs = Pairs.of([q for q, _ in names], [i for _, i in names])
    even = [float(int(document) % 2 == 0) for document in pairs.names()[1]]
    save(PositionBased().given(pairs, attraction_=even, examination_=np.ones(10)), tmp_path / "pbm.model")
    user = open_user(f"fitted:{tmp_path / 'pbm.model'}", 4)
    steps = list(simulate(make("random"), Stationary(split.train), user, 60))
    for step in steps:
        assert step.feedback.values.tolist() == [float(item % 2 == 0) for item in step.impression.items]
    assert (
        run(
            Trial(
                "pdgd",
                data="synthetic:mq2008?queries=3&vali=1&test=1",
                user=f"fitted:{tmp_path / 'pbm.model'}",
                rounds=20,
            )
        ).conventions["stop_requires_click"]
        is None
    )
    found = interleave(
        ["feature:1", "feature:2"],
        Split(split.train, None, split.train),
        user=f"fitted:{tmp_path / 'pbm.model'}",
        rounds=20,
    )
    assert (found.win + found.loss).sum() > 0
    other = open_split("synthetic:mq2008?queries=5&vali=1&test=1&seed=9").train
    strange = replace(other, queries=np.array([f"other {q}" for q in other.queries]), _candidates={})
    with pytest.raises(InvalidInput, match="has no query 'other"):
        list(simulate(make("random"), Stationary(strange), user, 1))
    with pytest.raises(InvalidInput, match="needs queries and items"):
        user.react(np.array([1, 0]), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("navigatoinal", UnknownName, "did you mean 'navigational'"),
        ("perfect?patience=3", InvalidParameter, "has no option 'patience'"),
        ("perfect?stop_requires_click=maybe", InvalidParameter, "must be true or false"),
        ("cascade?eta=1", InvalidParameter, "user 'cascade' has no option 'eta'"),
        ("pbm?eta=-1", InvalidParameter, "eta is -1.0"),
        ("pbm?gamma=1", InvalidParameter, "has no option 'gamma'"),
        ("dbn?gamma=2", InvalidParameter, "gamma is 2.0"),
        ("dbn?table=odd", InvalidParameter, "table is 'odd'"),
        (
            "ubm",
            UnknownName,
            "there are perfect, navigational, informational, almost-random, cascade, pbm, dbn, fitted",
        ),
        ("fitted:FILE", CodecError, "FILE: No such file"),
    ],
)
def test_bad_specs_are_named(spec: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        open_user(spec, 4)


def test_grades_off_the_table_are_named() -> None:
    with pytest.raises(InvalidParameter, match="knows grades up to 4, but the data has grade 7"):
        open_user("perfect", 7)
    with pytest.raises(InvalidInput, match=r"grades \[9\]"):
        DependentClickUser.named("perfect", 1).react(np.array([9]), np.random.default_rng(0))
    with pytest.raises(InvalidInput, match=r"grades \[9\]"):
        open_user("pbm", 1).react(np.array([9]), np.random.default_rng(0))
    with pytest.raises(InvalidParameter, match=r"probability 1\.5"):
        DependentClickUser((0.0, 1.5), (0.0, 0.0))
