"""Log readers: three formats, one log; what cannot be used is named, counted, never silently dropped."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankloop.clicks import SessionLog
from rankloop.clicks.readers import FORMATS, MALFORMED, NOT_SHOWN, read_log
from rankloop.core.errors import DataError

CLARA = "session\tquery\tdocs\tclicks\n1\tshoes\ta,b,c\t0,1,0\n1\thats\tb,d\t1,0\n2\tshoes\tc,a,b\t1,1,0\n"
YANDEX = (
    "1\t0\tQ\tshoes\t7\ta\tb\tc\n"
    "1\t9\tC\tb\n"
    "1\t20\tQ\thats\t7\tb\td\n"
    "1\t25\tC\tb\n"  # the latest page that shows b
    "2\t0\tQ\tshoes\t7\tc\ta\tb\n"
    "2\t3\tC\ta\n"
    "2\t4\tC\tc\n"
    "2\t5\tC\tc\n"  # twice is once
)
JSONL = (
    '{"session": 1, "query": "shoes", "documents": ["a", "b", "c"], "clicks": [0, 1, 0]}\n'
    '{"session": 1, "query": "hats", "documents": ["b", "d"], "clicks": ["b"]}\n'
    '{"session": 2, "query": "shoes", "documents": ["c", "a", "b"], "clicks": [true, true, false]}\n'
)
SAME = {"clara": CLARA, "yandex": YANDEX, "jsonl": JSONL}


def written(folder: Path, text: str | bytes, name: str = "log") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def told(log: SessionLog) -> list[tuple[str, str, list[str], list[int]]]:
    """The log as pages again."""
    queries, documents = log.pairs.names()
    return [
        (
            str(log.session_names[log.sessions[i]]),
            str(queries[log.shown[i, 0]]),
            documents[log.shown[i, : log.lengths[i]]].tolist(),
            log.clicks[i, : log.lengths[i]].tolist(),
        )
        for i in range(len(log))
    ]


PAGES = [
    ("1", "shoes", ["a", "b", "c"], [0, 1, 0]),
    ("1", "hats", ["b", "d"], [1, 0]),
    ("2", "shoes", ["c", "a", "b"], [1, 1, 0]),
]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_three_formats_tell_the_same(form: str, packed: bool, end: str, tmp_path: Path) -> None:
    content = SAME[form].replace("\n", end).encode()
    path = written(tmp_path, gzip.compress(content) if packed else content)
    for log in (read_log(path), read_log(path, form)):
        assert told(log) == PAGES
        assert log.report is not None
        assert (log.report.format, log.report.pages, log.report.skipped) == (form, 3, {})
        assert log.report.lines == SAME[form].count("\n")
        (kind,) = log.report.noticed
        assert kind == "page of other than 3 documents (2 to 3)"
        assert log.report.noticed[kind].count == 1


BAD = [
    ("clara", "1\tshoes\ta,b", MALFORMED, "3 fields between tabs"),
    ("clara", "1\tshoes\ta,b\t0,1\tx", MALFORMED, "5 fields between tabs"),
    ("clara", "1\tshoes\ta,b\t0,1,0", MALFORMED, "2 documents but 3 click flags"),
    ("clara", "1\tshoes\ta,b\t0,2", MALFORMED, "click flag '2'"),
    ("clara", "1\tshoes\ta,b\t0,", MALFORMED, "click flag ''"),
    ("clara", "1\tshoes\ta,,b\t0,1,0", MALFORMED, "a document without a name"),
    ("clara", "1\tshoes\t\t", MALFORMED, "click flag ''"),
    ("clara", "1\tshoes\t\t0", MALFORMED, "a document without a name"),
    ("clara", b"1\tsho\xffes\ta,b\t0,1", MALFORMED, "not UTF-8"),
    ("clara", "session\tquery\tdocs\tclicks", MALFORMED, "click flag 'clicks'"),  # a header in the middle
    ("yandex", "1\t0\tX\tb", MALFORMED, "'X' where Q"),
    ("yandex", "1\t0", MALFORMED, "'' where Q"),
    ("yandex", "1\t0\tQ\tshoes\t7", MALFORMED, "a page of 5 fields"),
    ("yandex", "1\t0\tQ\tshoes\t7\ta\t", MALFORMED, "a page of 7 fields"),
    ("yandex", "1\t0\tC", MALFORMED, "a click of 3 fields"),
    ("yandex", "1\t99\tC\tz", NOT_SHOWN, "no page of session '1' up to here shows 'z'"),
    ("yandex", "3\t99\tC\ta", NOT_SHOWN, "no page of session '3' up to here shows 'a'"),  # another session's page
    ("jsonl", '{"session": 1, "query": "shoes"', MALFORMED, "not a page as JSON"),
    ("jsonl", '{"session": 1, "query": "shoes", "clicks": []}', MALFORMED, "no 'documents'"),
    ("jsonl", "[1, 2]", MALFORMED, "not a page as JSON"),
    ("jsonl", '{"query": "q", "documents": [], "clicks": []}', MALFORMED, "at least one document"),
    ("jsonl", '{"query": "q", "documents": "ab", "clicks": []}', MALFORMED, "must be lists"),
    ("jsonl", '{"query": "q", "documents": [1.5], "clicks": []}', MALFORMED, "1.5 is no id"),
    ("jsonl", '{"query": "q", "documents": [true], "clicks": []}', MALFORMED, "True is no id"),
    ("jsonl", '{"query": null, "documents": ["a"], "clicks": []}', MALFORMED, "None is no id"),
    ("jsonl", '{"query": "q", "documents": ["a"], "clicks": ["z"]}', NOT_SHOWN, "'z' is not among the 1 documents"),
    ("jsonl", '{"query": "q", "documents": ["a", "b"], "clicks": [1]}', NOT_SHOWN, "'1' is not among"),
    ("jsonl", '{"query": "q", "documents": ["a", "b"], "clicks": [0, 2]}', NOT_SHOWN, "'0' is not among"),
]


@pytest.mark.parametrize(("form", "line", "kind", "why"), BAD)
def test_a_bad_line_is_named_or_counted(form: str, line: str | bytes, kind: str, why: str, tmp_path: Path) -> None:
    """Strict stops there and says where and why; otherwise all the rest is read, and the line is in the report."""
    content = SAME[form].encode()
    at = content.index(b"\n", content.index(b"\n") + 1) + 1  # as the third line
    raw = line if isinstance(line, bytes) else line.encode()
    path = written(tmp_path, content[:at] + raw + b"\n" + content[at:])
    with pytest.raises(DataError) as caught:
        read_log(path)
    for words in (f"{path}, line 3: {kind}: ", why, "--skip-bad"):
        assert words in str(caught.value)
    log = read_log(path, skip_bad=True)
    assert log.report is not None
    assert {what: (found.count, found.lines[0]) for what, found in log.report.skipped.items()}[kind][1] == 3
    assert [page for page in told(log) if page in PAGES] == PAGES
    if kind == NOT_SHOWN and form == "jsonl":  # only the click is left out
        assert len(log) == len(PAGES) + 1
        assert f"skipped: {NOT_SHOWN}" in str(log.report)
    else:
        assert len(log) == len(PAGES)


def test_a_click_elsewhere_leaves_the_other_clicks_of_its_page(tmp_path: Path) -> None:
    line = json.dumps({"session": "s", "query": "q", "documents": ["a", "b"], "clicks": ["advert", "b", "footer"]})
    log = read_log(written(tmp_path, line), skip_bad=True)
    assert told(log) == [("s", "q", ["a", "b"], [0, 1])]
    assert log.report is not None
    assert log.report.skipped[NOT_SHOWN].count == 2


@settings(max_examples=40)
@given(
    lines=st.lists(
        st.one_of(
            st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r"), max_size=25),
            st.sampled_from(["1\tq\ta,b\t0,1", "1\tq\ta\t1", '{"query": 1, "documents": [2], "clicks": [1]}']),
            st.sampled_from(["1\t0\tQ\tq\t1\ta\tb", "1\t0\tC\ta", "2\t0\tC\ta"]),
        ),
        max_size=12,
    ),
    form=st.sampled_from(FORMATS),
)
def test_every_line_is_used_or_counted(lines: list[str], form: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever a file holds, pages, clicks, bad and empty lines add up to its lines."""
    path = written(tmp_path_factory.mktemp("fuzz"), "".join(f"{line}\n" for line in lines))
    try:
        log = read_log(path, form, skip_bad=True)
    except DataError as error:
        assert "no page can be used" in str(error) or "empty" in str(error)  # noqa: PT017
        return
    assert log.report is not None
    empty = sum(not line.strip("\r") for line in lines)
    header = form == "clara" and lines[0] == "session\tquery\tdocs\tclicks"
    bad = sum(found.count for kind, found in log.report.skipped.items() if kind == MALFORMED or form == "yandex")
    clicks = sum(line.split("\t")[2:3] == ["C"] and len(line.split("\t")) == 4 for line in lines)
    if form == "yandex":  # clicks that were used are on no page line of their own
        bad += clicks - (log.report.skipped[NOT_SHOWN].count if NOT_SHOWN in log.report.skipped else 0)
    assert len(log) + bad + empty + header == len(lines) == log.report.lines


PACKED = gzip.compress("".join(f"{i}\tq\t{i * i % 99991},b\t0,1\n" for i in range(4000)).encode())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n\n", "is empty"),
        (b"session\tquery\tdocs\tclicks\n", "no page can be used"),
        (b"what is this\n", "line 1: neither a page"),
        (PACKED[:-900], "damaged or cut gzip"),
        (PACKED[:3000] + b"x" * 900, "gzip"),
        (PACKED + b"x", "gzip"),
    ],
)
def test_files_that_are_no_logs_are_named(content: bytes, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=words) as caught:
        read_log(path, skip_bad=True)
    assert str(path) in str(caught.value)


def test_a_split_is_by_session_and_depends_on_names_and_seed_alone(tmp_path: Path) -> None:
    rng = random.Random(0)
    lines = [f"s{i // 3}\tq{i % 5}\ta,b,c{i % 7}\t0,{i % 2},0\n" for i in range(300)]
    log = read_log(written(tmp_path, "".join(lines)))
    train, test = log.split(0.25, seed=3)
    sessions = [{page[0] for page in told(part)} for part in (train, test)]
    assert not sessions[0] & sessions[1]
    assert (len(sessions[0]), len(sessions[1])) == (75, 25)
    assert sorted(map(repr, told(train) + told(test))) == sorted(map(repr, told(log)))
    rng.shuffle(lines)
    again = read_log(written(tmp_path, "".join(lines), "other")).split(0.25, seed=3)[1]
    assert {page[0] for page in told(again)} == sessions[1]
    assert {page[0] for page in told(log.split(0.25, seed=4)[1])} != sessions[1]
    again_train, again_test = train.split(0.2, seed=3)  # a part can be split again
    halves = [{page[0] for page in told(part)} for part in (again_train, again_test)]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == sessions[0]
    assert len(halves[1]) == 15
    for part in (train, test):  # nothing of the other part is left in its tables
        shown = np.unique(part.shown[part.shown >= 0])
        assert len(shown) == len(part.pairs)
