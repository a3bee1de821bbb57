"""HTTP: the application, its routes, its doors, and the words for what went wrong. Knows the engine, not the store."""
