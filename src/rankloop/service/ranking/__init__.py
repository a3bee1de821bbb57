"""Specs and their learners: states, published models, and which of a learner's rankings is shown."""
