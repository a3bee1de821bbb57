"""The commands that stand on the pages, and how each is run."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from rankloop.cli import main
from tests.waiting import PATIENCE, wait_for

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?ms)^```(?:console|bash)\n(.*?)^```")
URL = "http://127.0.0.1:8080"
# What is on the machine already, or would not end.
NOT_RUN = re.compile(r"pip install |rankloop serve &|make (serve|test|demo|docs|dist)")


class Block(NamedTuple):
    page: str
    number: int
    text: str


def blocks(page: str) -> list[Block]:
    found = BLOCK.findall((ROOT / page).read_text("utf-8"))
    return [Block(page, number, text) for number, text in enumerate(found)]


def pages() -> list[str]:
    """Those on which a command stands."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in paths if BLOCK.search(path.read_text("utf-8"))]


def lines(text: str) -> list[str]:
    """The commands of a block that is one command a line, without what is said behind them."""
    given = [line.removeprefix("$ ") for line in text.splitlines()]
    return [shlex.join(words) for line in given if (words := shlex.split(line, comments=True))]


def environment(**more: str) -> dict[str, str]:
    """As of somebody who has installed rankloop and uses it for the first time."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKLOOP_") or "KERNELS" in name}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return kept | {"PATH": path, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"} | more


def plain(text: str) -> bool:
    """Whether a block is lines of `rankloop` alone, with nothing that only a shell could do."""
    given = [line.partition("#")[0] for line in text.splitlines()]
    return all(line.startswith("rankloop ") and not set("|&;<>$") & set(line) for line in given if line.strip())


def carry_out(text: str, folder: Path, **more: str) -> str:
    """Run commands as a shell does, ended by the first that fails; what they print."""
    kept = "\n".join(line for line in text.splitlines() if not NOT_RUN.match(line))
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", kept],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, errors = shell.communicate(timeout=PATIENCE)
        finally:  # the shell and what it started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, f"{kept}\n{printed[-3000:]}\n{errors[-3000:]}"
    return printed


def said_by(words: list[str]) -> str:
    """What the command prints, run in this process: a second less for each than in one of its own."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code: object = None
        try:
            main(words)
        except SystemExit as end:
            code = end.code
    assert not code, f"rankloop {shlex.join(words)}"
    return printed.getvalue()


def begin_and_end(command: str, folder: Path, until: str, **more: str) -> None:
    """Run a command that lasts: it must say `until`, and end well when it is told to."""
    log = folder / "said"
    with log.open("w") as said:
        running = subprocess.Popen(
            shlex.split(command), cwd=folder, env=environment(**more), stdout=said, stderr=said, start_new_session=True
        )
    try:

        def told() -> bool:
            assert running.poll() is None, log.read_text()
            return until in log.read_text()

        wait_for(told, f"{command} to say {until!r}")
        running.send_signal(signal.SIGINT)
        code = running.wait(PATIENCE)
        assert code in (0, 130), log.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
