"""Models: how good each document is, and how sure that is for each pair."""
