"""Click models: how users act on a list."""
