"""Machine code never outlives the sources it was made from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import caching

import rankloop
from rankloop.kernels._jit import MachineCodeFiles, sources_of

PACKAGE = Path(rankloop.__file__).parent
INNER = "from rankloop.kernels._jit import jit\n\n@jit\ndef inner(x):\n    return x + {}\n"
OUTER = (
    "from rankloop.kernels._jit import jit\nfrom rankloop.kernels.inner import inner\n\n"
    "@jit\ndef outer(x):\n    return 2 * inner(x)\n"
)


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """The kernel folder of a copy of rankloop with one kernel that calls another of another file."""
    folder = tmp_path / "one" / "rankloop" / "kernels"
    shutil.copytree(PACKAGE / "kernels", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder.parent / "__init__.py").touch()
    (folder / "inner.py").write_text(INNER.format(1))
    (folder / "outer.py").write_text(OUTER)
    return folder


def outer_of_three(kernels: Path, cache: Path) -> tuple[list[str], str]:
    """What a new process prints for outer(3) and for the number of cache hits, and its standard error."""
    code = "from rankloop.kernels.outer import outer; print(outer(3), sum(outer.stats.cache_hits.values()))"
    settings = {**os.environ, "PYTHONPATH": str(kernels.parents[1]), "RANKLOOP_KERNELS": str(cache)}
    run = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True)
    return run.stdout.split(), run.stderr


def test_an_edited_kernel_is_recompiled_in_kernels_of_other_files(kernels: Path, tmp_path: Path) -> None:
    assert outer_of_three(kernels, tmp_path / "cache")[0] == ["8", "0"]
    copy = tmp_path / "two" / "rankloop"
    shutil.copytree(kernels.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert outer_of_three(copy / "kernels", tmp_path / "cache")[0] == ["8", "1"], "the same sources elsewhere"
    (kernels / "inner.py").write_text(INNER.format(10))
    assert outer_of_three(kernels, tmp_path / "cache")[0] == ["26", "0"]


def test_an_unwritable_cache_folder_warns_and_kernels_work(kernels: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    out, errors = outer_of_three(kernels, tmp_path / "file")
    assert out == ["8", "0"]
    assert "RANKLOOP_KERNELS" in errors


def test_folders_not_used_for_a_month_are_deleted(kernels: Path, tmp_path: Path) -> None:
    old, young = tmp_path / "cache" / "outer-old", tmp_path / "cache" / "outer-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    outer_of_three(kernels, tmp_path / "cache")
    assert not old.exists()
    assert young.exists()


def test_importing_kernels_leaves_numba_alone() -> None:
    assert caching.IndexDataCacheFile.__module__ == "numba.core.caching"
    assert all(locator.__module__ == "numba.core.caching" for locator in caching.CacheImpl._locator_classes)
    assert "_locator_classes" not in vars(caching.CompileResultCacheImpl)


def test_sources_are_followed_through_every_import() -> None:
    names = {path.stem for path in sources_of(PACKAGE / "kernels" / "cascade.py")}
    assert {"_jit", "cascade", "bandits", "ranking", "products"} <= names  # ranking imports products
    assert "ftpl" not in names
    assert "ftpl" in {path.stem for path in sources_of(PACKAGE / "kernels" / "topk_loop.py")}


def test_kernels_import_only_kernels() -> None:
    """So the hash of kernel files covers all code that a kernel is compiled from."""
    for path in (PACKAGE / "kernels").glob("*.py"):
        imported = re.findall(r"^\s*from (rankloop\S*) import", path.read_text(), re.MULTILINE)
        assert all(module.startswith("rankloop.kernels") for module in imported), path.name


def test_two_signatures_saved_at_the_same_time_keep_their_own_code(tmp_path: Path) -> None:
    """Numba's own index can give both the same file; whoever asks for one then runs the code of the other."""
    one, two = (MachineCodeFiles(str(tmp_path), "queries.match", "") for _ in range(2))
    one.save(("array(float64)", "cpu"), "code for numbers")
    two.save(("array(int64)", "cpu"), "code for positions")
    for files in (one, two):
        assert files.load(("array(float64)", "cpu")) == "code for numbers"
        assert files.load(("array(int64)", "cpu")) == "code for positions"
        assert files.load(("array(bool)", "cpu")) is None


def test_code_that_is_cut_short_or_of_another_signature_is_compiled_again(tmp_path: Path) -> None:
    files = MachineCodeFiles(str(tmp_path), "queries.match", "")
    files.save(("array(float64)", "cpu"), "code")
    (kept,) = tmp_path.glob("*.nbc")
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    assert files.load(("array(float64)", "cpu")) is None
    files.save(("array(int64)", "cpu"), "other code")
    (other,) = (path for path in tmp_path.glob("*.nbc") if path != kept)
    kept.write_bytes(other.read_bytes())
    assert files.load(("array(float64)", "cpu")) is None
