"""Settings for the whole suite."""

from hypothesis import settings

# No deadline: the first example of a test may compile a kernel. Derandomised: a red suite is red again tomorrow.
settings.register_profile("rankloop", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("rankloop")
