"""Neural learners. docs/learners/neural.md tells; PyTorch is imported in `_torch` alone, when it is needed."""
