"""The service: rank over HTTP, learn durably, stay safe. docs/architecture.md has its folders and processes."""
