"""What is counted and told: metrics, curves, clicks by position, how far a ranker has moved."""
