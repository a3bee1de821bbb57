"""Settings for the whole suite, doctests included."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# A script's `make test &` and many CI runners start us with Ctrl-C ignored. Whatever we start would inherit that, and
# the tests that press it would wait for ever. (A program of ours keeps what it inherits: its parent wanted it so.)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machine code is kept where it always is: it is named by its sources, so old code is never found.
if "RANKLOOP_KERNELS" not in os.environ and "RANKLOOP_CACHE" not in os.environ:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ["RANKLOOP_KERNELS"] = str(home / "rankloop" / "kernels")
# Tests must neither see nor fill the user's cache of parsed data sets.
os.environ["RANKLOOP_CACHE"] = tempfile.mkdtemp(prefix="rankloop-tests-")
# One BLAS thread, as the command line has it; two test processes share two cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No deadline: the first example of a test may compile a kernel. Derandomised: a red suite is red again tomorrow.
# Before a release (`make soak`) ten times as many examples, and new ones each time.
settings.register_profile("test", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("soak", deadline=None, max_examples=400, print_blob=True)
settings.load_profile(os.environ.get("RANKLOOP_EXAMPLES", "test"))


# Files that take longest, or wait, begin first, so that no process ends long after the others.
FIRST = ["commands/test_pages", "service/test_trouble", "service/test_crash", "test_contract", "service/test_hanging"]
FIRST += ["service/test_stalls", "page/test_page", "service/test_catalogue", "service/test_parity"]
FIRST += ["service/test_lease", "kernels/test_jit_off", "test_machines", "demo/test_demo", "test_cluster"]
FIRST += ["service/test_experiments_crash"]
FIRST += ["cluster/test_hosts", "lab/test_papers", "lab/test_on_dask", "page/test_site", "service/test_learners"]
FIRST += ["learners/test_networks", "service/test_tutorial", "lab/test_provenance", "service/test_safety"]
FIRST += ["search/test_search", "capacity/test_measure", "service/test_proof"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        file = item.path.as_posix()
        return next((i for i, name in enumerate(FIRST) if file.endswith(f"tests/{name}.py")), len(FIRST))

    items.sort(key=place)  # stable: the others stay as they are


class _TellsFailures:
    """Names a failed test at once; pytest prints a letter, and the name only when all others have run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            why = report.longreprtext.strip().splitlines()[-1:]
            terminal.write_line(f"\nFAILED in {report.when}: {report.nodeid} {' '.join(why)}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # of several processes, the one that reports
        config.pluginmanager.register(_TellsFailures(config))
