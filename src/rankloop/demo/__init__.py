"""A small shop with simulated shoppers, in front of a real service: what `rankloop demo` shows. Start at `run.py`."""
