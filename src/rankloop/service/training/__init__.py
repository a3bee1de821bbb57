"""The fold over the log, and the house around it: who learns, windows that close, what is old."""
