"""Writes docs/cli.md from the commands' own help: `python docs/generate.py`. A test fails when the two differ."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from rankloop import cli

COMMANDS = (
    "",
    "serve",
    "doctor",
    "keys create",
    "keys list",
    "keys revoke",
    "keys rotate-tokens",
    "audit",
    "backup",
    "restore",
    "verify",
    "user export",
    "user erase",
    "compile",
    "catalog load",
    "catalog show",
    "warm-start",
    "import metarank",
    "import personalizer",
    "bench",
    "plan",
    "replay",
    "inspect",
    "export",
    "export-log",
    "learners",
    "simulate",
    "compare",
    "sweep",
    "interleave",
    "reproduce",
    "clicks fit",
    "clicks score",
    "clicks show",
    "data info",
    "data convert",
    "check",
)
TARGET = Path(__file__).with_name("cli.md")


def page() -> str:
    """The whole page."""
    parts = [
        "# The command line\n\nMade from `rankloop --help` by `python docs/generate.py`; do not edit.\n\n"
        "Output for people goes to the terminal, `--json` prints what programs read. A wrong call or bad input is one "
        "line with the remedy, exit code 2.\n"
    ]
    for command in COMMANDS:
        parts.append(f"## `rankloop {command}`\n".replace(" `\n", "`\n").replace(" `", " `", 1))
        parts.append(f"```text\n{help_of(command)}\n```\n")
    return "\n".join(parts)


def help_of(command: str) -> str:
    """What `rankloop COMMAND --help` prints, 100 columns wide and without colors."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=100, force_terminal=False, color_system=None)
    cli.build().help_print(command.split(), console=console)
    return "\n".join(line.rstrip() for line in buffer.getvalue().strip().splitlines())


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
