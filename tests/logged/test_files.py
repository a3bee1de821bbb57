"""Reading logged lists: every format gives the same lists, and what is wrong is named with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankloop.core.errors import DataError, InvalidInput, InvalidParameter
from rankloop.logs import LoggedImpression, LogReader, parse_line
from tests.logged.logs import lists, rows_of, write_json_lines, write_parquet, write_tsv


def read(*paths: Path, **options: Any) -> list[LoggedImpression]:
    reading = LogReader(paths, strict=True, **options)
    return list(map(reading.parsed, reading))  # a comprehension's frame would keep the file open after an error


def test_every_format_holds_the_same_lists(tmp_path: Path) -> None:
    found = lists(9)
    plain = read(write_json_lines(tmp_path / "log.jsonl", found))
    assert len(plain) == 9
    assert plain[0].query == "q0"
    assert plain[0].items == ["i0", "i1", "i2", "i3", "i4"]
    assert sum(plain[0].clicks) == 1
    assert read(write_json_lines(tmp_path / "log.jsonl.gz", found)) == plain
    assert read(write_tsv(tmp_path / "log.tsv", rows_of(found))) == plain
    assert read(write_parquet(tmp_path / "log.parquet", rows_of(found))) == plain


def test_rows_may_come_in_any_order_and_what_has_no_position_was_not_shown(tmp_path: Path) -> None:
    rows = rows_of(lists(1, n=3))
    rows[0]["position"], rows[2]["position"] = 3, 1
    rows.append({**rows[0], "item": "unseen", "position": None, "click": None})
    for path in (write_tsv(tmp_path / "log.tsv", rows), write_parquet(tmp_path / "log.parquet", rows)):
        (one,) = read(path)
        assert one.items == ["i2", "i1", "i0", "unseen"]
        assert len(one.clicks) == 3


def test_integers_may_be_ids_of_a_table(tmp_path: Path) -> None:
    rows = [{**row, "item": int(row["item"][1:])} for row in rows_of(lists(2))]
    path = write_tsv(tmp_path / "log.tsv", rows)
    assert read(path, whole_ids=True)[0].items == [0, 1, 2, 3, 4]
    assert read(write_parquet(tmp_path / "log.parquet", rows))[0].items == [0, 1, 2, 3, 4]
    assert read(path)[0].items == ["0", "1", "2", "3", "4"]


def test_clicks_are_ids_or_flags() -> None:
    shown = {"items": ["a", "b", "c"]}
    for clicks in (["b"], [0, 1, 0], [False, True, False], ["b", "b"]):
        assert parse_line(json.dumps({**shown, "clicks": clicks}).encode()).clicks == [0.0, 1.0, 0.0]
    assert parse_line(json.dumps({**shown, "shown": 2, "clicks": [1, 0]}).encode()).clicks == [1.0, 0.0]
    assert parse_line(json.dumps({"items": [7, 1], "clicks": [1]}).encode()).clicks == [0.0, 1.0]


FINE = {"query": "q", "items": ["a", "b"], "features": [[0.1], [0.2]], "clicks": ["a"]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"items": []}, "empty"),
        ({"items": ["a", "a"]}, "'a' occurs twice"),
        ({"items": ["a", 1]}, "all be strings or all be integers"),
        ({"items": ["a", None]}, "items[1] is None"),
        ({"items": ["a", 2**70]}, "items[1]"),
        ({"items": [1, 2**70], "clicks": []}, "64 bits"),
        ({"items": ["a", "\0"]}, "an id"),
        ({"items": ["a", "\ud800"]}, "an id"),
        ({"clicks": ["c"]}, "clicked but not shown: 'c'"),
        ({"clicks": ["b"], "shown": 1}, "clicked but not shown: 'b'"),
        ({"clicks": [["a"]]}, "clicked but not shown"),
        ({"clicks": 1}, "clicks is 1"),
        ({"clicks": None}, "clicks is None"),
        ({"shown": 3}, "shown is 3"),
        ({"features": [[0.1]]}, "1 rows for 2 items"),
        ({"features": [[0.1], {"f": 1}]}, "all by name or all lists"),
        ({"features": [[0.1], None]}, "features of item 'b' are None"),
        ({"query": 3}, "query is 3"),
        ({"user": ""}, "user is ''"),
        ({"propensity": 0}, "propensity is 0"),
        ({"propensity": 1.5}, "propensity is 1.5"),
        ({"propensity": "much"}, "propensity is 'much'"),
        ({"log_propensity": 0.1}, "log_propensity is 0.1"),
        ({"log_propensity": float("nan")}, "log_propensity is nan"),
        ({"log_propensity": -1, "propensity": 0.5}, "give one"),
        ({"clickz": []}, "'clickz' is not a field"),
        ({"items": [{"id": "a", "feature": 1}], "features": None}, "'feature' is not a field of an item"),
        ({"items": [{"id": "a"}], "features": [[1]]}, "give them once"),
    ],
)
def test_what_is_wrong_with_a_list_is_named(changed: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_line(json.dumps({**FINE, **changed}).encode())
    assert words in str(caught.value)


def test_malformed_lines_are_named_and_counted_or_end_it(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "log.jsonl", lists(3))
    good = path.read_text().splitlines()
    path.write_text("\n".join([good[0], "{", "", good[1], '{"items": [], "clicks": []}', good[2]]))
    told: list[str] = []
    reading = LogReader([path], on_bad=told.append)
    assert len([one for raw in reading if (one := reading.parsed(raw)) is not None]) == 3
    assert reading.bad == 2
    assert told[0].startswith(f"{path}:2: not JSON")
    assert told[1] == f"{path}:5: items is empty; give at least one"
    with pytest.raises(DataError, match=r"log\.jsonl:2: not JSON"):
        read(path)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("click", 2, "it must be 0 or 1"),
        ("click", "yes", "click is 'yes'"),
        ("position", 0, "whole numbers from 1"),
        ("position", 2, "position 2 occurs twice"),
        ("position", "first", "position is 'first'"),
        ("f1", "", "feature 'f1' of item 'i0' is None"),
        ("item", "i1", "'i1' occurs twice"),
        ("item", "", "an id is ''"),
    ],
)
def test_a_bad_row_spoils_its_own_list_only(tmp_path: Path, column: str, value: Any, words: str) -> None:
    rows = rows_of(lists(3))
    rows[5][column] = value
    path, told = write_tsv(tmp_path / "log.tsv", rows), list[str]()
    reading = LogReader([path], on_bad=told.append)
    assert len([one for raw in reading if (one := reading.parsed(raw)) is not None]) == 2
    (text,) = told
    assert text.startswith(f"{path}:7: ")
    assert words in text


def test_files_that_are_none_are_told(tmp_path: Path) -> None:
    other = tmp_path / "log.tsv"
    other.write_text("list\tquery\titem\n")
    with pytest.raises(DataError, match="no column position, click"):
        read(other)
    broken = tmp_path / "log.parquet"
    broken.write_text("no")
    with pytest.raises(DataError, match="not a Parquet file"):
        read(broken)
    packed = write_json_lines(tmp_path / "log.jsonl.gz", lists(50))
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match="damaged or cut off"):
        read(packed)
    with pytest.raises(InvalidParameter, match="give --format"):
        LogReader([tmp_path / "log.log"])
    with pytest.raises(InvalidParameter, match="no log"):
        LogReader([])
    with pytest.raises(FileNotFoundError):
        LogReader([tmp_path / "nowhere.jsonl"])


@pytest.mark.parametrize("kind", ["jsonl", "tsv", "parquet"])
def test_a_file_is_known_by_what_is_in_it(tmp_path: Path, kind: str) -> None:
    found = lists(6)

    def keys(name: str, some: list[Any]) -> list[str]:
        path = tmp_path / f"{name}.{kind}"
        if kind == "jsonl":
            write_json_lines(path, some)
        else:
            (write_tsv if kind == "tsv" else write_parquet)(path, rows_of(some))
        return [raw.key for raw in LogReader([path])]

    whole = keys("whole", found)
    assert len(set(whole)) == 6
    assert keys("renamed", found) == whole
    assert keys("shorter", found[:4]) == whole[:4]
    assert not set(keys("other", lists(6, seed=1))) & set(whole)
    assert not set(keys("twice", [found[0]] * 6)[1:]) & set(whole)
    assert len(set(keys("twice", [found[0]] * 6))) == 6
    mended = keys("mended", [*found[:2], {**found[2], "query": "mended"}, *found[3:]])
    assert [a == b for a, b in zip(mended, whole, strict=True)] == [True, True, False, True, True, True]
