"""Formats of foreign systems: what their requests mean here, and models exported to them."""
