"""The routes, a file a subject. Handlers are thin: they read the request, ask, and say what comes back."""
