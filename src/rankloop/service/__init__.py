"""The service: rank over HTTP, learn durably, stay safe.

A room for each job, from the socket down to the disk; imports go down only (import-linter holds that):

    run, listening   start: take the port; one process, or several that share it
    api/             the application: middleware, the fast path of rank and feedback, routes, errors
    operations/      what operators do and see: rankers, versions, experiments, warm start, views
    engine           one process's share: it ranks, takes feedback, and holds the rooms below together
    learning/        the fold over the log; leases, windows, retention
    experiments/     two rankings on live traffic: mixing, evidence
    offline/         looking back: replay, challengers, estimates, inspection
    archive/         the log as Parquet files: columns, schema, export
    telemetry/       metrics, history, clicks by position, movement
    ranking/         candidates -> array -> model -> what is shown
    store/           the log and everything beside it, in SQLite or PostgreSQL; a leaf
    wire/            what travels
    pages/           the status page, the API to browse
    load_generator   `rankloop bench`
    capacity         `rankloop plan`

Start reading at `engine.py`; docs/how-data-flows.md walks a request through.
"""
