"""API keys, tokens for browsers, and identities."""
