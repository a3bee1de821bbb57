"""Data sets: LETOR files, generated shapes, and the names by which both are opened (`sources`)."""
