"""Metrics, statistics, interleaving, off-policy estimates, position bias and sequential tests."""
