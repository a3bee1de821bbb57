"""The LETOR reader against its naive twin, and what it says about files that are wrong."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankloop.core.errors import DataError, InvalidParameter
from rankloop.kernels.letor import decimal
from rankloop.kernels.scaling import minmax_queries
from rankloop.lab.datasets import letor, letor_text
from rankloop.lab.datasets.dataset import Dataset
from rankloop.lab.datasets.letor import read_letor, read_parts, write_letor
from tests.reference import letor as naive


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANKLOOP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(folder: Path, text: str | bytes, name: str = "some.txt") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ---- numbers


@given(st.integers(0, 10**18 - 1), st.integers(-300, 300))
@example(9007199254740993, 0)  # in the middle of two floats
@example(17976931348623157, 292)
@example(1, -250)
@example(0, 999)
def test_a_decimal_is_correctly_rounded_or_left_to_python(mantissa: int, exponent: int) -> None:
    found = decimal(mantissa, exponent)
    assert np.isnan(found) or found == float(f"{mantissa}e{exponent}")
    if mantissa < 2**53 and abs(exponent) <= 22:
        assert not np.isnan(found)


@given(st.floats(1e-200, 1e200))
def test_what_python_writes_is_read_without_its_help(value: float) -> None:
    mantissa, _, exponent = f"{value:.16e}".replace(".", "").partition("e")
    assert decimal(int(mantissa), int(exponent) - 16) == value


# ---- text


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=6).map(str),
    st.integers(-5, 300).map(str),
    st.sampled_from(["0", "-0.0", "+.5", "7.", "1E5", "1e-320", "0." + "3" * 30, "123456789012345678901", "00.10"]),
)
documents = st.tuples(
    st.sampled_from(["0", "1", "4", "2.0", "10", "+3"]),
    st.sampled_from(["1", "2", "30", "a-b", "é"]),
    st.dictionaries(st.integers(1, 9), numbers, max_size=6),
    st.sampled_from(["", " # note 1:2", "#x", "\r", "\t ", "\n", "\n# whole line\n"]),
    st.sampled_from([" ", "\t", "  "]),
)


def line(document: tuple[str, str, dict[int, str], str, str]) -> str:
    grade, query, features, end, blank = document
    return blank.join([grade, f"qid:{query}", *(f"{index}:{value}" for index, value in features.items())]) + end


@given(st.lists(documents, min_size=1, max_size=12), st.booleans())
def test_reads_as_the_naive_parser(tmp_path_factory: pytest.TempPathFactory, rows: list[object], newline: bool) -> None:
    text = "\n".join(line(row) for row in rows) + "\n1 qid:1 3:1.5" + "\n" * newline  # type: ignore[arg-type]
    path = written(tmp_path_factory.mktemp("letor"), text)
    features, grades, queries, lengths = naive.parse(text)
    found = read_letor(path, normalize="none")
    assert found.features.tobytes() == features.tobytes()
    assert found.grades.tolist() == grades.tolist()
    assert found.queries.tolist() == queries
    assert np.diff(found.offsets).tolist() == lengths


def test_lines_and_rows_may_fall_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    cells = [" ".join(f"{j + 1}:{v:.6f}" for j, v in enumerate(rng.random(1 + i % 7)) if v > 0.3) for i in range(90)]
    text = "".join(f"{i % 3} qid:{i % 11} {cell}\n" for i, cell in enumerate(cells))
    path = written(tmp_path, text)
    monkeypatch.setattr(letor_text, "CHUNK", 100)
    monkeypatch.setattr(letor_text, "_BLOCK", 200)
    monkeypatch.setattr(letor_text, "_PEEK", 0)
    monkeypatch.setattr(letor, "_BATCH", 300)
    found = read_letor(path, normalize="none")
    features, grades, queries, _ = naive.parse(text)
    assert found.features.tobytes() == features.tobytes()
    assert (found.grades.tolist(), found.queries.tolist()) == (grades.tolist(), queries)


def test_gzip_bom_and_progress(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"\xef\xbb\xbf1 qid:a 1:2\n"), "named-anyhow")
    seen: list[tuple[int, int]] = []
    found = read_letor(path, normalize="none", width=3, on_progress=lambda done, total: seen.append((done, total)))
    assert found.features.tolist() == [[2.0, 0.0, 0.0]]
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 2**32))
def test_minmax_is_its_twin(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.integers(-2, 3, (sum(lengths), 3)) * rng.choice([0.1, 1e9])
    expected = naive.minmax(features, lengths)
    minmax_queries(features, np.concatenate([[0], np.cumsum(lengths)]))
    assert features.tolist() == expected.tolist()
    assert ((features >= 0) & (features <= 1)).all()


def test_normalization_is_by_query_and_named(tmp_path: Path) -> None:
    path = written(tmp_path, "1 qid:1 1:2 2:7\n0 qid:1 1:4 2:7\n0 qid:2 1:9\n")
    found = read_letor(path)
    assert found.features.tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    assert found.normalization == "query-minmax"
    with pytest.raises(InvalidParameter, match="normalize is 'max'"):
        read_letor(path, normalize="max")


# ---- wrong files

GOOD = "0 qid:1 1:0.5\n# a comment\n\n"
WRONG = {
    "x qid:1 1:1": "grade 'x' is not a whole number from 0 to 62",
    "-1 qid:1 1:1": "grade '-1' is not a whole number",
    "2.5 qid:1 1:1": "grade '2.5' is not a whole number",
    "99 qid:1 1:1": "grade '99' is not a whole number",
    "nan qid:1 1:1": "grade 'nan' is not",
    "1": "expected qid:ID after the grade, found nothing",
    "1 1:0.5 2:1": "expected qid:ID after the grade, found '1:0.5'",
    "1 qid: 1:0.5": "expected qid:ID after the grade, found 'qid:'",
    "1 qid:1 0:0.5": "feature index '0' is not a whole number from 1 to 100000; indices start at 1",
    "1 qid:1 -3:0.5": "feature index '-3' is not",
    "1 qid:1 100001:0.5": "feature index '100001' is not",
    "1 qid:1 99999999999999999999:1": "feature index '99999999999999999999' is not",
    "1 qid:1 a:0.5": "feature index 'a' is not",
    "1 qid:1 1:abc": "value 'abc' of feature 1 is not a finite decimal number",
    "1 qid:1 1:": "value '' of feature 1 is not",
    "1 qid:1 1:1e": "value '1e' of feature 1 is not",
    "1 qid:1 1:0x10": "value '0x10' of feature 1 is not",
    "1 qid:1 1:1_0": "value '1_0' of feature 1 is not",
    "1 qid:1 1:nan": "value 'nan' of feature 1 is not",
    "1 qid:1 2:-inf": "value '-inf' of feature 2 is not",
    "1 qid:1 1:1e999": "value '1e999' of feature 1 is not",
    "1 qid:1 1:1.2.3": "value '1.2.3' of feature 1 is not",
    "1 qid:1 1 2:3": "'1' has no colon; features are written index:value",
    "1 qid:1 2:1 1:3 2:1": "feature 2 stands twice in the line",
    "\x00\x01\x02": r"grade '\x00\x01\x02' is not",
    "1 qid:\x00 1:1": r"query id '\x00' is not printable",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f"{GOOD}{line}\n{GOOD}")
    with pytest.raises(DataError) as caught:
        read_letor(path)
    assert str(caught.value).startswith(f"{path}, line 4: {WRONG[line]}"), caught.value


def test_a_query_id_must_be_utf8(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 2: query id '\\\\xff' is not printable UTF-8"):
        read_letor(written(tmp_path, b"1 qid:1 1:1\n1 qid:\xff 1:1\n"))


def test_files_that_are_not_letor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gzip.compress(os.urandom(9).hex().encode() * 50)
    with pytest.raises(DataError, match="no documents in it"):
        read_letor(written(tmp_path, ""))
    with pytest.raises(DataError, match="no documents in it"):
        read_letor(written(tmp_path, "# only\n\n"))
    with pytest.raises(DataError, match="documents, but no features"):
        read_letor(written(tmp_path, "1 qid:1\n"))
    with pytest.raises(DataError, match="the gzip data ends too early"):
        read_letor(written(tmp_path, whole[:-12]))
    with pytest.raises(DataError, match="damaged gzip data"):
        read_letor(written(tmp_path, whole[:-6] + b"abcdef"))
    with pytest.raises(DataError, match="No such file or directory"):
        read_letor(tmp_path / "absent.txt")
    monkeypatch.setattr(letor_text, "LONGEST_LINE", 1000)
    with pytest.raises(DataError, match="a line of more than 1000 bytes"):
        read_letor(written(tmp_path, b"\x07" * 3000))


# ---- writing


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz"])
def test_what_is_written_reads_back_bit_for_bit(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(9, 6)) * 10.0 ** rng.integers(-9, 9, (9, 6)) * (rng.random((9, 6)) < 0.6)
    features[:, 5], features[2, 0] = 0.0, -0.0
    before = Dataset("x", features, rng.integers(0, 13, 9), np.array([0, 4, 5, 9]), np.array(["b", "a", "ü"]))
    write_letor(before, tmp_path / name)
    after = read_letor(tmp_path / name, normalize="none")
    assert after.features.tobytes() == before.features.tobytes()
    for field in ("grades", "offsets", "queries"):
        assert getattr(after, field).tolist() == getattr(before, field).tolist()
    with pytest.raises(DataError, match="query id 'a b' cannot be written"):
        write_letor(Dataset("x", np.eye(1), np.array([1]), np.array([0, 1]), np.array(["a b"])), tmp_path / name)


# ---- parts


def test_cuts_are_by_query_whole_and_stable(tmp_path: Path) -> None:
    text = "".join(f"{i % 2} qid:{i % 10} 1:{i}\n" for i in range(40))
    path = written(tmp_path, text)
    parts = read_parts([path], (0.6, 0.2, 0.2), normalize="none")
    assert [len(part) for part in parts] == [6, 2, 2]
    assert sorted(q for part in parts for q in part.queries.tolist()) == [str(q) for q in range(10)]
    for part in parts:
        for q, query in enumerate(part.queries.tolist()):
            assert part.candidates(q).features[:, 0].tolist() == [float(query) + 10 * i for i in range(4)]
    backwards = written(tmp_path, "\n".join(reversed(text.split("\n"))), "backwards.txt")
    again = read_parts([backwards], (0.6, 0.2, 0.2))
    assert [set(part.queries) for part in again] == [set(part.queries) for part in parts]
    with pytest.raises(DataError, match="2 queries, too few to cut into 3 parts"):
        read_parts([written(tmp_path, "1 qid:1 1:1\n1 qid:2 1:1\n")], (0.6, 0.2, 0.2))


# ---- the kept form


def test_a_second_load_does_not_read_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "1 qid:1 1:1\n")
    first = read_letor(path)
    monkeypatch.setattr(letor, "read_text", lambda *_: pytest.fail("read again"))
    second = read_letor(path)
    assert second.features.tolist() == first.features.tolist()
    assert not second.features.flags.writeable


def test_a_changed_source_or_option_is_read_again(tmp_path: Path, own_cache: Path) -> None:
    path = written(tmp_path, "1 qid:1 1:1\n")
    stat = path.stat()
    assert read_letor(path, normalize="none").features.tolist() == [[1.0]]
    assert read_letor(path, normalize="none", width=2).features.tolist() == [[1.0, 0.0]]
    assert read_letor(path).features.tolist() == [[0.0]]
    written(tmp_path, "1 qid:1 1:2\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same time: the fingerprint tells
    assert read_letor(path, normalize="none").features.tolist() == [[2.0]]
    assert len(list(own_cache.iterdir())) == 3  # the outdated entry is gone


@pytest.mark.parametrize("damage", ["cut", "flip", "no index", "cut index", "empty"])
def test_a_damaged_entry_is_made_again(tmp_path: Path, own_cache: Path, damage: str) -> None:
    path = written(tmp_path, "1 qid:1 1:1 2:5\n")
    read_letor(path, normalize="none")
    (entry,) = own_cache.iterdir()
    features, index = entry / "features", entry / "index"
    if damage == "cut":
        features.write_bytes(features.read_bytes()[:8])
    elif damage == "flip":
        features.write_bytes(features.read_bytes()[::-1])
    elif damage == "no index":
        index.unlink()
    elif damage == "cut index":
        index.write_bytes(index.read_bytes()[:-9])
    else:
        features.unlink()
        index.unlink()
    for _ in range(2):
        assert read_letor(path, normalize="none").features.tolist() == [[1.0, 5.0]]
    assert sorted(file.name for file in entry.iterdir()) == ["features", "index"]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "1 qid:1 1:1\n")
    monkeypatch.setenv("RANKLOOP_CACHE", str(path / "below-a-file"))
    assert read_letor(path, normalize="none").features.tolist() == [[1.0]]


def test_many_may_load_at_the_same_time(tmp_path: Path, own_cache: Path) -> None:
    path = written(tmp_path, "".join(f"{i % 3} qid:{i % 7} 1:{i} 5:{i / 8}\n" for i in range(500)))
    expected = naive.parse(path.read_text())[0].tobytes()
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(read_letor(path, normalize="none").features.tobytes()))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8
    assert len(list(own_cache.iterdir())) == 1
