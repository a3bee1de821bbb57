"""The service: rank over HTTP, learn durably, stay safe. Start reading at `engine.py`."""
