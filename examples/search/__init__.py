"""A search box over your own Python that learns from clicks: `python -m examples.search`, described in docs/search.md.

`index.py` is the engine, which finds candidates in an order of its own; `app.py` has every use of rankloop;
`simulation.py` stands in for people, and `__main__.py` runs everything in one process.
"""
