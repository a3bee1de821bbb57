"""What operators do and see: make, change and watch rankers, run experiments. Blocking: call in a thread."""
