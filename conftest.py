"""Settings for the whole suite, doctests included."""

import os
import tempfile

from hypothesis import settings

# Tests must neither see nor fill the user's cache of parsed data sets.
os.environ["RANKLOOP_CACHE"] = tempfile.mkdtemp(prefix="rankloop-tests-")
# One BLAS thread, as the command line has it; two test processes share two cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No deadline: the first example of a test may compile a kernel. Derandomised: a red suite is red again tomorrow.
settings.register_profile("rankloop", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("rankloop")
