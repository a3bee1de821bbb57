"""Metrics of the processes of one machine, exchanged by files: a scrape reaches one process and returns those of all.

The folder under the system's temporary directory belongs to one user and one store; only that user can read it.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote, unquote

WRITE_EVERY = 5.0  # seconds; other processes of the machine may be so far behind in a scrape
STALE = 60.0  # seconds after which the report of a process that does not write is left out, and deleted
_SUFFIX = ".report"
logger = logging.getLogger("rankloop")


class SharedReports:
    """The folder with the reports of all processes of this machine that serve one store. Each writes a file of its own
    every `WRITE_EVERY` seconds and when it is scraped.

    Parameters
    ----------
    store
        The store's name; services of other stores have other folders.
    machine
        The name that `machine_name` gives it.
    worker
        This process: the machine, the process number and a random part, separated by colons.
    """

    def __init__(self, store: str, machine: str, worker: str) -> None:
        self._store, self._machine, self._worker = store, machine, worker
        self._warned = False

    def write(self, report: bytes) -> None:
        """Let the other processes read this report. If that is not possible, log it once."""
        try:
            path = self._folder() / f"{quote(self._worker, safe='')}{_SUFFIX}"
            new = path.with_suffix(".new")
            new.write_bytes(report)
            new.replace(path)
            self._warned = False
        except OSError as error:
            if not self._warned:
                logger.warning("/metrics of other processes will not show this one: %s; check TMPDIR", error)
            self._warned = True

    def read(self) -> dict[str, bytes]:
        """The reports of the processes of this machine that run, by worker."""
        found = {}
        try:
            for path in self._folder().iterdir():
                worker = unquote(path.name.removesuffix(_SUFFIX))
                own = path.suffix == _SUFFIX and worker.startswith(f"{self._machine}:")
                with suppress(FileNotFoundError):  # another process has just replaced or deleted it
                    if time.time() - path.stat().st_mtime > STALE or (own and has_ended(worker)):
                        path.unlink()
                    elif own:
                        found[worker] = path.read_bytes()
        except OSError as error:
            logger.warning("/metrics does not show all processes of this machine: %s; check TMPDIR", error)
        return found

    def remove(self) -> None:
        """Delete the report: this process ends."""
        with suppress(OSError):  # what cannot be deleted becomes stale
            folder = self._folder()
            (folder / f"{quote(self._worker, safe='')}{_SUFFIX}").unlink(missing_ok=True)
            folder.rmdir()  # the last one; fails if it is not

    def _folder(self) -> Path:
        """The folder, made if it is not there; refused if others could read or change what is in it."""
        user = os.getuid() if hasattr(os, "getuid") else 0
        name = f"rankloop-{user}-{blake2b(self._store.encode(), digest_size=8).hexdigest()}"
        folder = Path(tempfile.gettempdir()) / name
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if hasattr(os, "getuid") and (
            not stat.S_ISDIR(found.st_mode) or found.st_uid != user or stat.S_IMODE(found.st_mode) & 0o077
        ):
            raise PermissionError(f"{folder} is not a folder that only this user can use; delete it")
        return folder


def has_ended(worker: str) -> bool:
    """Whether a worker of this machine (`machine:process:random`) does not run any more."""
    try:
        os.kill(int(worker.split(":")[-2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, IndexError):  # of another user, or no process number
        return False
    return False
