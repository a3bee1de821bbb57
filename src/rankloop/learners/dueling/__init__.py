"""Dueling learners: changes of the weights, compared by interleaving. docs/learners/dueling.md describes them."""
