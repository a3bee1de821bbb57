"""Marks to compare with that learn nothing. docs/learners/baselines.md describes them."""
