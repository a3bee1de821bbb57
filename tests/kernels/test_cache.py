"""Machine code never outlives the sources it was made from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core import caching

import rankloop
from rankloop.kernels import _cache

FILE: Any = caching.IndexDataCacheFile
PACKAGE = Path(rankloop.__file__).parent
INNER = "from rankloop.kernels._jit import jit\n\n@jit\ndef inner(x):\n    return x + {}\n"
OUTER = (
    "from rankloop.kernels._jit import jit\nfrom rankloop.kernels.inner import inner\n\n"
    "@jit\ndef outer(x):\n    return 2 * inner(x)\n"
)


def outer_of_three(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a new process makes of outer(3), and whether it took the code from the cache."""
    code = "from rankloop.kernels.outer import outer; print(outer(3), sum(outer.stats.cache_hits.values()))"
    settings = {**os.environ, "PYTHONPATH": str(root), **environment}
    return subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True)


def package(root: Path) -> Path:
    """A copy of rankloop with one kernel that calls another of another file; the kernels' folder."""
    kernels = root / "rankloop" / "kernels"
    shutil.copytree(PACKAGE / "kernels", kernels, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE / "__init__.py", root / "rankloop")
    (kernels / "inner.py").write_text(INNER.format(1))
    (kernels / "outer.py").write_text(OUTER)
    return kernels


def test_an_edited_kernel_is_seen_by_kernels_of_other_files(tmp_path: Path) -> None:
    kernels, kept = package(tmp_path / "one"), str(tmp_path / "kept")
    assert outer_of_three(tmp_path / "one", RANKLOOP_KERNELS=kept).stdout.split() == ["8", "0"]
    assert outer_of_three(tmp_path / "one", RANKLOOP_KERNELS=kept).stdout.split() == ["8", "1"]
    (kernels / "inner.py").write_text(INNER.format(10))
    assert outer_of_three(tmp_path / "one", RANKLOOP_KERNELS=kept).stdout.split() == ["26", "0"]


def test_the_same_sources_elsewhere_find_the_same_code(tmp_path: Path) -> None:
    package(tmp_path / "one")
    package(tmp_path / "two")
    kept = str(tmp_path / "kept")
    assert outer_of_three(tmp_path / "one", RANKLOOP_KERNELS=kept).stdout.split() == ["8", "0"]
    assert outer_of_three(tmp_path / "two", RANKLOOP_KERNELS=kept).stdout.split() == ["8", "1"]


def test_where_nothing_can_be_written_kernels_work_and_a_warning_says_what_it_costs(tmp_path: Path) -> None:
    package(tmp_path / "one")
    file = tmp_path / "file"
    file.write_text("not a folder")
    run = outer_of_three(tmp_path / "one", RANKLOOP_KERNELS=str(file))
    assert run.stdout.split() == ["8", "0"]
    assert "set RANKLOOP_KERNELS to a folder that can be written" in run.stderr


def test_sources_are_followed_through_every_import() -> None:
    kernels = PACKAGE / "kernels"
    names = {path.stem for path in _cache.sources_of(kernels / "cascade.py")}
    assert {"_jit", "cascade", "bandits", "ranking", "products"} <= names  # products is imported by ranking
    assert "ftpl" not in names
    assert "ftpl" in {path.stem for path in _cache.sources_of(kernels / "topk_loop.py")}  # from rankloop.kernels import


def test_kernels_depend_on_kernels_and_the_type_of_arrays_alone() -> None:
    """So the key of their machine code, which is made of kernel files, misses nothing."""
    for path in (PACKAGE / "kernels").glob("*.py"):
        imported = re.findall(r"^\s*from (rankloop\S*) import (.+)$", path.read_text(), re.MULTILINE)
        others = {pair for pair in imported if not pair[0].startswith("rankloop.kernels")}
        assert others <= {("rankloop.core.types", "Array")}, path.name


def test_folders_not_used_for_a_month_go(tmp_path: Path) -> None:
    package(tmp_path / "one")
    kept = tmp_path / "kept"
    old, young = kept / "outer-old", kept / "outer-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    outer_of_three(tmp_path / "one", RANKLOOP_KERNELS=str(kept))
    assert not old.exists()
    assert young.exists()


def test_two_that_compile_at_the_same_time_do_not_mix_their_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba's own index gave both signatures one file if each was looked up before the other was saved: from then on
    whoever asked for the first ran the machine code of the second."""
    monkeypatch.setattr(_cache, "_root", lambda: tmp_path)
    one, two = (FILE(str(tmp_path / "queries-1"), "queries.match", "stamp") for _ in range(2))
    (tmp_path / "queries-1").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(FILE, "_load_index", lambda _: {})  # as it was before either was saved
        one.save(("array(float64)", "cpu"), "code for numbers")
        two.save(("array(int64)", "cpu"), "code for positions")
    for file in (one, two):
        assert file.load(("array(float64)", "cpu")) == "code for numbers"
        assert file.load(("array(int64)", "cpu")) == "code for positions"
        assert file.load(("array(bool)", "cpu")) is None


def test_code_that_is_cut_short_or_of_something_else_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cache, "_root", lambda: tmp_path)
    file = FILE(str(tmp_path), "queries.match", "stamp")
    file.save(("array(float64)", "cpu"), "code")
    (kept,) = tmp_path.glob("*.nbc")
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    assert file.load(("array(float64)", "cpu")) is None
    file.save(("array(int64)", "cpu"), "other code")
    (other,) = (path for path in tmp_path.glob("*.nbc") if path != kept)
    kept.write_bytes(other.read_bytes())
    assert file.load(("array(float64)", "cpu")) is None
