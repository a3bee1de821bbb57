"""Retention, archives and upgrades of stored data."""
