"""Dueling learners: tried changes of the weights, judged by clicks on mixed lists. docs/learners/dueling.md tells."""
