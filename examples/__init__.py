"""Programs to run and to copy from: `python -m examples.shop`, `python -m examples.search`."""
