"""Figures, tables and reports of results."""
