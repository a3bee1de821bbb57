"""What every process of a service needs: threads, settings, the store, a clock, metrics."""
