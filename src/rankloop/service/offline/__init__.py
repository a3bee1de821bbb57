"""Looking back at a store that nobody need serve: replay, other learners on the log, estimates, a look at a ranker."""
