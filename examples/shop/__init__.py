"""A small shop with simulated shoppers in front of a real service: `python -m examples.shop`."""
