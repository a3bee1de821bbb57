"""The first minutes with rankloop: what is said while kernels compile, where the shell finds commands, where to go."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rankloop.cli import _out
from rankloop.kernels import compilation
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
ONE_KERNEL = """
import rankloop.core.learner, numpy
from rankloop.kernels.pairwise import dot
print(dot(numpy.ones(3), numpy.ones(3)))
"""


def environment(folder: Path) -> dict[str, str]:
    """With nothing compiled yet."""
    return os.environ | {"PYTHONPATH": str(ROOT / "src"), "RANKLOOP_KERNELS": str(folder), "TERM": "xterm"}


def on_a_terminal(code: str, folder: Path) -> str:
    """What a person sees who runs it."""
    master, slave = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], env=environment(folder), stdout=slave, stderr=slave) as run:
        os.close(slave)
        seen = b""
        try:
            while part := os.read(master, 4096):
                seen += part
        except OSError:  # the other end has gone
            pass
        assert run.wait(PATIENCE) == 0
    os.close(master)
    return seen.decode()


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled then")
def test_a_terminal_says_which_kernel_is_compiled_and_only_the_first_time(tmp_path: Path) -> None:
    first, second = on_a_terminal(ONE_KERNEL, tmp_path), on_a_terminal(ONE_KERNEL, tmp_path)
    assert "rankloop: compiling kernels for this machine, once: dot (1 of" in first
    assert f"{compilation.CLEAR}3.0" in first  # the line is gone when the work goes on
    assert second.startswith("3.0")
    assert "compiling" not in second


def test_elsewhere_nothing_is_said(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ONE_KERNEL]
    run = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("3.0\n", "")


def test_bars_have_one_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(force_terminal=True, record=True, width=100, file=io.StringIO())
    monkeypatch.setattr(_out, "people", screen)
    before = compilation.report
    with _out.progress_bars() as bars:
        bars.add_task("rounds", total=10)
        compilation.report("gather", 3, 40)
        bars.refresh()
        assert [task.description for task in bars.tasks] == ["rounds", "compiling gather, once on this machine"]
        assert (bars.tasks[1].completed, bars.tasks[1].total) == (3, 40)
        compilation.report("", 3, 40)
        assert not bars.tasks[1].visible
    assert compilation.report is before


def test_bash_completes_a_command(tmp_path: Path) -> None:
    """In bash itself: rankloop com<TAB>."""
    home = {"HOME": str(tmp_path), "SHELL": "/bin/bash"}
    command = [sys.executable, "-m", "rankloop", "--install-completion"]
    subprocess.run(command, env=environment(tmp_path) | home, check=True, capture_output=True)
    script = tmp_path / ".local/share/bash-completion/completions/rankloop"
    asked = f"""
source {script}
COMP_WORDS=(rankloop com) COMP_CWORD=1 COMP_LINE='rankloop com' COMP_POINT=12
"$(complete -p rankloop | sed -E 's/.*-F ([^ ]+).*/\\1/')"
echo "${{COMPREPLY[@]}}"
"""
    run = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, env=os.environ | home)
    assert set(run.stdout.split()) == {"compare", "compile"}
