"""Start a service and watch over its processes."""
