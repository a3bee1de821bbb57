"""Messages of the HTTP API as msgspec structs, shared by client, service, store and OpenAPI document."""
