"""Simulated users and graders, and the names by which they are opened (`registry`)."""
