"""The shapes that others speak, to ours and back: structs and pure functions, which know nothing of HTTP or a store.

A file a system. `service/http/routes` has their paths, `rankloop import` their configurations, `rankloop warm` their
logs.
"""
