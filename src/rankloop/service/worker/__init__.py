"""What every process of a service has: threads, clocks, limits, executors."""
