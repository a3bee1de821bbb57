"""Measures what a plan is made of, on this machine: a real service, a real store, processor time by process."""
