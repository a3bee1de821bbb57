"""How many processes, machines and bytes a load needs, from measured constants. Start at `plan.py`."""
