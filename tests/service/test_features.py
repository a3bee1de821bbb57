"""Requests to arrays: every form means the same, is normalized alike, and what is wrong is said by name."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.errors import InvalidInput, InvalidParameter
from rankloop.kernels.scaling import minmax_queries
from rankloop.service.errors import UnknownFeature
from rankloop.service.ranking.feature_spec import check_features
from rankloop.service.serving import request_body
from rankloop.service.serving.request_body import BodyReader, plain
from rankloop.service.serving.schema import Schema
from rankloop.wire.rankers import Spec

NUMBERS = st.one_of(st.floats(-1e100, 1e100), st.integers(-(2**70), 2**70), st.floats(-1e10, 1e10, width=32))
PACKED_INFINITY = base64.b64encode(np.array([1, 2, np.inf, 0], "<f4").tobytes()).decode()
FORMS = ["rows", "names", "turned", "columns", "named", "packed", "short"]


def schema(
    *names: str, normalization: Literal["query-minmax", "none"] = "none", defaults: dict[str, float] | None = None
) -> Schema:
    return Schema(Spec(features=list(names), normalization=normalization, defaults=defaults or {}))


def body(form: str, ids: list[Any], rows: Any, names: list[str], **head: Any) -> bytes:
    """A request as JSON; None in a row is a value that is missing."""
    rows = [list(row) for row in rows]
    if form in ("rows", "names", "turned"):
        own: list[Any] = rows
        if form != "rows":
            own = [dict(zip(names, row, strict=True)) for row in rows]
        if form == "turned":
            own = [dict(reversed(list(row.items()))) for row in own]
        sent = {"candidates": [{"id": item, "features": row} for item, row in zip(ids, own, strict=True)], **head}
    else:
        table: Any = rows
        if form == "named":
            table = {name: [row[j] for row in rows] for j, name in enumerate(names)}
        if form in ("packed", "short"):
            kind = "<f8" if form == "packed" else "<f4"
            table = base64.b64encode(np.array(rows, dtype=kind).tobytes()).decode()
        sent = {**head, "ids": ids, "features": table}
    return json.dumps(sent).encode()


@given(
    st.integers(1, 4).flatmap(lambda d: st.lists(st.lists(NUMBERS, min_size=d, max_size=d), min_size=1, max_size=6)),
    st.booleans(),
    st.text(max_size=5).filter(lambda text: "\0" not in text),
)
def test_every_body_form_gives_the_same_call(rows: list[list[float]], words: bool, query: str) -> None:
    names, ids = [f"f{j}" for j in range(len(rows[0]))], [f"i[{i}" if words else i for i in range(len(rows))]
    for form in FORMS:
        exact = np.array(rows, dtype=np.float64)
        if form == "short":
            exact = np.clip(exact, -3e38, 3e38).astype(np.float32).astype(np.float64)
        head = {"query": query, "k": 3, "user": "u", "request_id": "r"}
        sent = body(form, ids, exact.tolist() if form == "short" else rows, names, **head)
        call, slow = schema(*names).parse(sent), schema(*names).read(plain(sent))
        assert call[:5] == slow[:5] == (query, 3, "r", "u", ids)
        assert call.rows is not None
        assert slow.rows is not None
        assert call.rows.tobytes() == slow.rows.tobytes() == exact.tobytes()


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=6), st.sampled_from(FORMS[:6]))
def test_query_minmax_equals_the_lab(rows: list[list[float]], form: str) -> None:
    ours = schema("a", "b", "c", normalization="query-minmax")
    call = ours.parse(body(form, list(range(len(rows))), rows, ["a", "b", "c"]))
    found, expected = ours.candidates(call).features, np.array(rows, dtype=np.float64)
    assert call.rows is not None
    assert call.rows.tobytes() == expected.tobytes()  # a rival of other features takes them as they were sent
    minmax_queries(expected, np.array([0, len(rows)]))
    assert found is not None
    assert found.tobytes() == expected.tobytes()
    assert ((found >= 0) & (found <= 1)).all()


def test_candidates_for_another_ranker() -> None:
    ours, other = schema("a", "b", "c"), schema("c", "a", normalization="query-minmax")
    call = ours.parse(body("rows", ["x", "y"], [[1, 2, 3], [5, 6, 9]], ["a", "b", "c"], query="q"))
    found = ours.candidates_for(other, call)
    assert found.features is not None
    assert (found.query, found.items.tolist(), found.features.tolist()) == ("q", ["x", "y"], [[0, 0], [1, 1]])
    assert ours.candidates_for(schema(), call).features is None
    with pytest.raises(UnknownFeature, match=r"'a'.*'b'.*'c'.*'d'"):
        ours.candidates_for(schema("a", "d"), call)


# -- values that are missing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_missing_values_get_the_declared_default(form: str) -> None:
    names, rows = ["a", "b", "c"], [[1.0, None, 3.0], [None, 5.0, 6.0], [7.0, 8.0, 9.0]]
    sent = body(form, ["x", "y", "z"], rows, names)
    call = schema(*names, defaults={"a": -1.5, "b": 0.25}).parse(sent)
    assert call.rows is not None
    assert call.rows.tolist() == [[1.0, 0.25, 3.0], [-1.5, 5.0, 6.0], [7.0, 8.0, 9.0]]
    cases: list[tuple[dict[str, float], str]] = [({}, "'x', feature 'b'"), ({"b": 1.0}, "'y', feature 'a'")]
    for defaults, words in cases:
        with pytest.raises(InvalidInput, match=f"candidate {words} has no value .* no default .*`defaults`"):
            schema(*names, defaults=defaults).parse(sent)


def test_omitted_named_features_get_the_default() -> None:
    ours, names = schema("a", "b", "c", defaults={"a": -1.0, "c": 2.0}), ["a", "b", "c"]
    several: list[dict[str, Any]] = [{"b": 1}, {"c": 3, "b": 4}, {"a": 5, "b": 6, "c": None}, {"c": 7, "b": 8, "a": 9}]
    for first in range(4):  # the way that is taken hangs on the first row
        rows = several[first:] + several[:first]
        call = ours.parse(json.dumps({"candidates": [{"id": i, "features": r} for i, r in enumerate(rows)]}).encode())
        assert call.rows is not None
        sent = [{k: v for k, v in row.items() if v is not None} for row in rows]
        wanted = [[{"a": -1.0, "c": 2.0, **row}[name] for name in names] for row in sent]
        assert call.rows.tolist() == wanted
    columns = ours.parse(b'{"ids": [1, 2], "features": {"b": [3, 4], "a": [null, 1]}}')
    assert columns.rows is not None
    assert columns.rows.tolist() == [[-1.0, 3.0, 2.0], [1.0, 4.0, 2.0]]
    for wrong in (b'{"ids": [1], "features": {"a": [1]}}', b'{"candidates": [{"id": 1, "features": {"a": 1}}]}'):
        with pytest.raises(UnknownFeature, match="'b'"):
            ours.parse(wrong)


@pytest.mark.parametrize(
    ("defaults", "words"), [({"b": 1.0}, "'b', which is not a feature"), ({"a": 1e101}, r"'a' is 1e\+101")]
)
def test_invalid_defaults_are_refused(defaults: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        check_features(Spec(features=["a"], defaults=defaults))


def test_no_nan_causes_a_warning() -> None:
    """Warnings are errors here; a signalling NaN raises one where it is converted."""
    packed = base64.b64encode(np.array([0x7F800001, 0xFFC00000], dtype="<u4").tobytes()).decode()
    call = schema("a", "b", defaults={"a": 1.0, "b": 2.0}).parse(f'{{"ids": [1], "features": "{packed}"}}'.encode())
    assert call.rows is not None
    assert call.rows.tolist() == [[1.0, 2.0]]


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (None, ["'x' has no features", "'a', 'b'"]),
        ([1.0], ["'x' has 1 features", "but 2 are to be sent"]),
        ([1.0, 2.0, 3.0], ["'x' has 3 features", "but 2 are to be sent"]),
        ({}, ["'x' lacks feature 'a', 'b'"]),
        ({"a": 1.0}, ["'x' lacks feature 'b'"]),
        ({"a": 1.0, "c": 1.0}, ["lacks feature 'b'", "unknown feature 'c'", "features are 'a', 'b'"]),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, ["has unknown feature 'c'"]),
        ([1.0, 1.0000001e100], ["'x'", "'b' is 1.0000001e+100", "1e+100"]),
    ],
)
def test_errors_name_the_candidate_and_feature(features: Any, words: list[str]) -> None:
    for one in ([0.0, 0.0], {"a": 0.0, "b": 0.0}, {"b": 0.0, "a": 0.0}):
        sent = {"candidates": [{"id": "w", "features": one}, {"id": "x", "features": features}]}
        with pytest.raises(InvalidInput) as error:
            schema("a", "b").parse(json.dumps(sent).encode())
        for word in words:
            assert word in str(error.value)
        assert isinstance(error.value, UnknownFeature) == isinstance(features, dict)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ("null", ["no features", "'a', 'b'"]),
        ("[[1, 2]]", ["2 ids but 1 rows"]),
        ("[[1, 2], [1, 2], [1, 2]]", ["2 ids but 3 rows"]),
        ("[[1, 2], [1]]", ["'x' has 1 features, but 2 are to be sent"]),
        ("[[1], [1, 2, 3]]", ["'w' has 1 features"]),  # as many numbers as there should be
        ("[[1, 2], [1, 2e100]]", ["candidate 'x', feature 'b' is 2e+100"]),
        ('{"a": [1, 2]}', ["lacks feature 'b'"]),
        ('{"a": [1, 2], "b": [1, 2], "c": [1, 2]}', ["unknown feature 'c'"]),
        ('{"a": [1, 2], "b": [1]}', ["feature 'b' has 1 values for 2 ids"]),
        ('"AAAA"', ["3 bytes", "2 ids x 2 features", "32 as float64", "16 as float32"]),
        ('""', ["0 bytes"]),
        (
            f'"{base64.b64encode(np.array([1, 2, np.inf, 0], "<f4").tobytes()).decode()}"',
            ["candidate 'x', feature 'a' is inf"],
        ),
    ],
)
def test_errors_of_tables_name_the_item_and_feature(features: str, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as error:
        schema("a", "b").parse(f'{{"ids": ["w", "x"], "features": {features}}}'.encode())
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ("[[[1], 2], [1, 2]]", "features.0..0"),
        ("[[1, []], [1, 2]]", "features.0..1"),
        ("[[1, true], [1, 2]]", "got `bool`"),
        ('{"a": [1, 2], "b": [1, "2"]}', "got `str`"),
        ('"AAA"', "base64"),
        ("7", r"\$.features"),
        ('[[1, 2], [1, 2]], "features": [[1, 2], [1, 2]], "id": 1', "unknown field `id`"),
        ('[[1, 2], [1, 2]], "candidates": []', "both `candidates` and `ids`"),
        ('[[1, 2], [1, 2]], "k": 0', r"\$.k"),
        ('[[1, 2], [1, 2]], "query": 5', r"\$.query"),
    ],
)
def test_tables_of_another_shape_are_refused(features: str, words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        schema("a", "b").parse(f'{{"ids": ["w", "x"], "features": {features}}}'.encode())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("ids", "word"), [(["a", "a"], "twice"), ([1, "1"], "integers"), (["a\0", "b"], "NUL"), (["a", "b\0c"], "NUL")]
)
def test_ids_are_checked(form: str, ids: list[Any], word: str) -> None:
    ours = schema("a")
    with pytest.raises(InvalidInput, match=word):
        ours.candidates(ours.parse(body(form, ids, [[1.0], [2.0]], ["a"])))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("item", ["", "x" * 257, 2**63, -(2**63) - 1, 1.5, True, None, ["a"], {}])
def test_ids_of_another_type_are_refused(form: str, item: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.(ids\[1\]|candidates\[1\]\.id)"):
        schema("a").parse(body(form, ["b", item], [[1.0], [2.0]], ["a"]))


def test_largest_allowed_numbers_are_accepted() -> None:
    for form in FORMS[:6]:
        call = schema("a", "b").parse(body(form, ["x", "y"], [[1e100, -1e100], [5e-324, -0.0]], ["a", "b"]))
        assert call.rows is not None
        assert call.rows.tolist() == [[1e100, -1e100], [5e-324, -0.0]]


def test_any_order_of_feature_names_is_read() -> None:
    """A type is kept for the first of them only."""
    names = [f"f{j}" for j in range(5)]
    ours = schema(*names)
    for seed in range(40):
        order = np.random.default_rng(seed).permutation(5).tolist()
        sent = {"candidates": [{"id": 0, "features": {names[j]: j for j in order}}]}
        call = ours.parse(json.dumps(sent).encode())
        assert call.rows is not None
        assert call.rows.tolist() == [[0, 1, 2, 3, 4]]


def test_a_parser_in_use_is_replaced() -> None:
    """It refuses to read while something that it made is alive; the request is read all the same, and so are others."""
    sent = body("columns", ["x"], [[1.0, 2.0]], ["a", "b"])
    held = request_body._parsed(sent)
    for _ in range(2):
        call = schema("a", "b").parse(sent)
        assert call.rows is not None
        assert call.rows.tolist() == [[1.0, 2.0]]
    assert BodyReader(["a", "b"], {})._read_fast(sent, 9) is not None  # the quick way again
    assert held["ids"].as_list() == ["x"]


def test_several_threads_read_bodies() -> None:
    ours = schema("a", "b")

    def read(i: int) -> bool:
        rows = [[float(i), float(j)] for j in range(50)]
        found = ours.parse(body("rows" if i % 2 else "columns", list(range(50)), rows, ["a", "b"])).rows
        return found is not None and found.tolist() == rows

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(200)))
