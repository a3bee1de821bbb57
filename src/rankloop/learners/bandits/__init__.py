"""Click bandits: one list a query, ids only. docs/learners/bandits.md describes them."""
