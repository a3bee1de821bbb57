"""Settings for the whole suite, doctests included."""

import os
import tempfile
from pathlib import Path

from hypothesis import settings

# Machine code is kept where it always is: it is named by its sources, so old code is never found.
if "RANKLOOP_KERNELS" not in os.environ and "RANKLOOP_CACHE" not in os.environ:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ["RANKLOOP_KERNELS"] = str(home / "rankloop" / "kernels")
# Tests must neither see nor fill the user's cache of parsed data sets.
os.environ["RANKLOOP_CACHE"] = tempfile.mkdtemp(prefix="rankloop-tests-")
# One BLAS thread, as the command line has it; two test processes share two cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No deadline: the first example of a test may compile a kernel. Derandomised: a red suite is red again tomorrow.
settings.register_profile("rankloop", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("rankloop")
