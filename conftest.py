"""Settings of the whole test suite, doctests included."""

from __future__ import annotations

import os
import signal
import tempfile
import uuid
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# Shell scripts and CI runners may start the suite with SIGINT ignored. Child processes inherit that, and tests that
# send SIGINT would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiled kernels stay in the user's cache: entries are keyed by their sources, so stale code is never loaded.
if "RANKLOOP_KERNELS" not in os.environ and "RANKLOOP_CACHE" not in os.environ:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ["RANKLOOP_KERNELS"] = str(home / "rankloop" / "kernels")
# Tests neither read nor fill the user's cache of parsed data sets.
os.environ["RANKLOOP_CACHE"] = tempfile.mkdtemp(prefix="rankloop-tests-")
# One BLAS thread per process: several test processes share the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Every process that a test starts inherits this variable, so that leftovers can be found at the end.
OUTERMOST = "PYTEST_RUN_ID" not in os.environ
RUN_ID = os.environ.setdefault("PYTEST_RUN_ID", uuid.uuid4().hex)

# No deadline: the first example of a test may compile a kernel. Derandomized: a failure can be repeated.
settings.register_profile("test", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("test")


class RunReport:
    """Print the name of a failed test when it fails, and one line per reason for skipped tests at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            last_line = " ".join(report.longreprtext.strip().splitlines()[-1:])
            terminal.write_line(f"\nFAILED in {report.when}: {report.nodeid} {last_line}", red=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reasons: Counter[str] = Counter()
        for report in terminalreporter.stats.get("skipped", []):
            place = report.longrepr
            reasons[place[2].removeprefix("Skipped: ") if isinstance(place, tuple) else str(place)] += 1
        if reasons:
            listed = "; ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
            terminalreporter.write_line(f"skipped: {listed}")

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield  # pytest-xdist stops its workers here
        # Without workers, what this process stops when it exits is still running.
        workers = self._config.getoption("numprocesses", None)
        for pid, command in started_processes() if OUTERMOST and workers else []:
            print(f"left behind by a test and stopped now: process {pid}: {command}")  # noqa: T201
            os.kill(pid, signal.SIGKILL)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def started_processes() -> list[tuple[int, str]]:
    """List the running processes that this test run started. The run itself got its id after it was started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # the process ended, or belongs to someone else
            continue
        if f"PYTEST_RUN_ID={RUN_ID}".encode() in environment and command:  # a zombie has no command line
            found.append((int(folder.name), command))
    return found


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # only in the process that reports, not in the workers of pytest-xdist
        config.pluginmanager.register(RunReport(config))
