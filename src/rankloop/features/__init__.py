"""Features that are computed from fields of items, users and requests."""
