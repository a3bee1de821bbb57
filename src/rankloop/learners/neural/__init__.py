"""Neural learners. docs/learners/neural.md describes them; PyTorch is imported in `_torch` alone, when it is needed."""
