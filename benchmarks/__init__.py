"""Speed and quality, measured: `python -m benchmarks` prints the tables."""
