"""What travels over HTTP, as msgspec structs: OpenAPI, client, engine and store all read these."""
