"""The road of a run: trial, simulate or a compiled loop, workers, results, statistics."""
