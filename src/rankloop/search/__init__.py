"""A search engine over the Python on this machine that learns from clicks: what `rankloop search` runs.

The worked example of docs/search.md. Three files are the whole application, to be read in this order and copied:
`index.py` (an engine: it finds candidates and has an order of its own), `app.py` (every place where rankloop comes in),
`run.py` (both in one process). `page/` is what the browser shows, `simulation.py` stands in for people.
"""
