"""Pairwise learners: weights learned from which of two documents was clicked. docs/learners/pairwise.md tells."""
