"""From the body of a request to a ranking: loaded rankers, catalogs, counters, experiments, the engine."""
