"""Hosts without machines: a network namespace each, with a name and an address of its own, joined by the wire."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
NETWORK = "10.77.0."  # inside the namespaces only: nothing outside knows it
TOOLS = ("ip", "nsenter", "unshare", "setpriv", "hostname")


def lacking() -> str | None:
    """Why there can be no hosts here; None if there can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces and TUN devices need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"there is no {missing[0]} here: install iproute2 and util-linux"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun here: a container needs --device /dev/net/tun"
    tried = subprocess.run(["unshare", "--net", "--uts", "--pid", "--fork", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"namespaces cannot be made: {tried.stderr.decode().strip()}"


class Space:
    """A namespace of networks and names. It lives as long as a process in it, and that ends with whoever made it."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.address = name, f"{NETWORK}{number}"
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", f"hostname {name} && echo up && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == b"up\n"

    @property
    def pid(self) -> int:
        """A process in it."""
        return self._keeper.pid

    def run(self, command: Sequence[str], **terms: Any) -> subprocess.Popen[bytes]:
        """Start something in it, that does not outlive the thread that calls."""
        inside = ["nsenter", "-t", str(self.pid), "--net", "--uts"]
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *inside, *command], cwd=ROOT, start_new_session=True, **terms
        )

    def close(self) -> None:
        """Let it go."""
        self._keeper.communicate()


class Network:
    """Spaces on a wire, and what becomes of the packets between any two."""

    def __init__(self, names: Sequence[str]) -> None:
        with ExitStack() as stack:  # if the wire does not start, the spaces are closed
            self.spaces: dict[str, Space] = {}
            for number, name in enumerate(names, 1):
                self.spaces[name] = Space(name, number)
                stack.callback(self.spaces[name].close)
            ends = [f"{space.pid}={space.address}" for space in self.spaces.values()]
            self._wire = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.wire", *ends],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
            stack.callback(self._wire.communicate)
            self._done()
            self._stack = stack.pop_all()

    def __getitem__(self, name: str) -> Space:
        return self.spaces[name]

    def way(self, source: str, target: str, **terms: Any) -> None:
        """From now on packets in this direction are lost or late as `terms` say (`open`, `loss`, `delay`); nothing
        said: they pass."""
        said = {"from": self[source].address, "to": self[target].address, **terms}
        words: IO[bytes] | None = self._wire.stdin
        assert words is not None
        words.write(json.dumps(said).encode() + b"\n")
        words.flush()
        self._done()

    def ways(self, one: str, other: str, **terms: Any) -> None:
        """The same in both directions."""
        self.way(one, other, **terms)
        self.way(other, one, **terms)

    def close(self) -> None:
        """All of it goes; nothing is left behind."""
        self._stack.close()

    def _done(self) -> None:
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline() == b"done\n", "the wire has ended"
