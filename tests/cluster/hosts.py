"""What runs in the namespaces: services with clocks of their own, and the PostgreSQL that they share."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.cluster.spaces import Space
from tests.waiting import PATIENCE, wait_for

PORT = 8080
KEY = "a-key-of-the-cluster-test"
# A clock that is wrong, by what the first argument says, before anything of the service is imported.
SERVE = """
import sys, time
wrong, right = float(sys.argv.pop(1)), time.time
time.time = lambda: right() + wrong
from rankloop.cli import main
main()
"""


class Server:
    """A real PostgreSQL in a namespace; whoever checks it comes in by a socket of the file system, past the network."""

    def __init__(self, space: Space, folder: Path) -> None:
        if "XDG_RUNTIME_DIR" not in os.environ:  # without it pgserver warns at import
            os.environ["XDG_RUNTIME_DIR"] = private = tempfile.mkdtemp(prefix="rankloop-runtime-")
            atexit.register(shutil.rmtree, private, ignore_errors=True)  # its lock is in it until this process ends
        pgserver = importlib.import_module("pgserver")
        commands = importlib.import_module("pgserver._commands")
        data = folder / "data"
        made = pgserver.get_server(data, cleanup_mode="stop")  # makes the user and the folder
        made.cleanup()
        atexit.unregister(made._cleanup)
        self._space, self._log = space, folder / "postgres.log"
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {space.address.rpartition('.')[0]}.0/24 trust\n")
        user = pwd.getpwnam(made.system_user)
        os.chown(folder, user.pw_uid, user.pw_gid)  # for its socket
        rights = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig=QUIT"]
        where = ["-h", space.address, "-k", str(folder), "-D", str(data)]
        self._command = [*rights, str(commands.POSTGRES_BIN_PATH / "postgres"), *where]
        self.url = f"postgresql://postgres@{space.address}/postgres"
        self.inside = f"postgresql://postgres@/postgres?host={folder}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        with self._log.open("ab") as output:
            self._process = self._space.run(self._command, stdout=output, stderr=output)

        def up() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            try:
                psycopg.connect(self.inside, connect_timeout=5).close()
            except psycopg.OperationalError:
                return False
            return True

        wait_for(up, "PostgreSQL", every=0.02)

    def stop(self, hard: bool = False) -> None:
        """As at a shutdown, connections cut; `hard`: as at a crash, from which it recovers by its log."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT if hard else signal.SIGINT)
        self._process.wait(PATIENCE)

    def kill(self) -> None:
        """Whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self.stop(hard=True)


class Host:
    """`rankloop serve` in a namespace of networks, names and processes, with a clock that is off by `wrong` seconds."""

    def __init__(self, space: Space, log_file: Path, wrong: float = 0.0, **settings: Any) -> None:
        self.space, self.name, self.log_file = space, space.name, log_file
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKLOOP_")}
        said = {"host": space.address, "port": PORT, "keys": f"{KEY}:rank+feedback+read+admin", **settings}
        self._environment = kept | {f"RANKLOOP_{name.upper()}": str(value) for name, value in said.items()}
        self._wrong = wrong
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it is not ready yet."""
        command = ["unshare", "--pid", "--fork", "--kill-child=KILL", sys.executable, "-c", SERVE, str(self._wrong)]
        with self.log_file.open("ab") as output:
            self._process = self.space.run([*command, "serve"], stdout=output, stderr=output, env=self._environment)

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def processes(self) -> dict[int, int]:
        """Its processes: the number that each knows itself by -> the one outside; 1 is the supervisor."""
        assert self._process is not None
        found, unseen = {}, _children(self._process.pid)
        while unseen:
            one = unseen.pop()
            with contextlib.suppress(OSError, StopIteration):  # it may end while we look
                lines = Path(f"/proc/{one}/status").read_text().splitlines()
                numbers = next(line for line in lines if line.startswith("NSpid:")).split()
                found[int(numbers[-1])] = one
                unseen += _children(one)
        return found

    def learner(self, workers: Sequence[str]) -> int | None:
        """The process that learns, by what the store says of `workers`; None: there is none just now."""
        mine = self.processes()
        for worker in workers:
            machine, number, _ = worker.split(":")
            process = mine.get(int(number))
            if process is not None and machine.startswith(f"{self.name}/"):
                with contextlib.suppress(OSError):
                    space = str(Path(f"/proc/{process}/ns/pid").readlink()).strip("pid:[]")
                    if machine.endswith(f"/{space}"):  # not of the same number before the host was killed
                        return process
        return None

    def signal(self, number: int) -> None:
        """A signal to all of its processes."""
        for process in self.processes().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def kill(self) -> None:
        """SIGKILL to all: its namespace of processes goes with the first."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)

    def stop(self) -> None:
        """SIGTERM to the supervisor, and wait until it has learned and saved the rest."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(self.processes()[1], signal.SIGTERM)
        self._process.wait(PATIENCE)

    def log(self) -> str:
        """The end of what it said."""
        return self.log_file.read_text()[-4000:]


def _children(process: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A place that the user of PostgreSQL may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="rankloop-hosts-") as made:
        Path(made).chmod(0o755)
        yield Path(made)
