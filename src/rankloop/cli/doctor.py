"""`rankloop doctor`."""

from __future__ import annotations

import sys
from collections import Counter

from cyclopts import App

from rankloop.cli import _out
from rankloop.service.doctor import examine

SIGNS = {"fine": "[green]ok[/green]  ", "note": "[blue]note[/blue]", "warning": "[yellow]warn[/yellow]"}
SIGNS |= {"trouble": "[red]bad[/red] "}


def add_to(app: App) -> None:
    """Register the command."""
    app.command(doctor)


def doctor(*, store: str | None = None, host: str | None = None, port: int | None = None, json: bool = False) -> None:
    """Look at what rankloop stands on, and say what to do where something is not as it should be.

    Python and packages, compiled kernels, settings of the environment, port, disk, memory, clock, and the store with
    its rankers. Nothing is changed. Exit code 1 if something does not work.

    Example: rankloop doctor --store shop.db

    Parameters
    ----------
    store
        The store that `rankloop serve` has or will have; else RANKLOOP_STORE, else rankloop.db.
    host
        Address to listen on; else RANKLOOP_HOST, else 127.0.0.1.
    port
        Port to listen on; else RANKLOOP_PORT, else 8080.
    json
        Print JSON.
    """
    findings = []
    for one in examine(store, host, port):
        findings.append(one)
        if not json:
            console = _out.wide()
            console.print(f"{SIGNS[one.state]} [bold]{one.name}[/bold]: ", end="")
            console.print(one.text, markup=False, highlight=False, soft_wrap=True)
            if one.remedy:
                console.print(f"     -> {one.remedy}", markup=False, highlight=False, soft_wrap=True)
    counts = Counter(one.state for one in findings)
    if json:
        _out.print_json([one._asdict() for one in findings])
    else:
        said = "all is well" if not counts["trouble"] + counts["warning"] else "what to do stands behind each arrow"
        print(f"\n{counts['trouble']} in trouble, {counts['warning']} to look at, {counts['fine']} fine: {said}")
    if counts["trouble"]:
        sys.exit(1)
