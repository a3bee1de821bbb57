"""Pairwise learners: weights learned from pairs of documents. docs/learners/pairwise.md describes them."""
