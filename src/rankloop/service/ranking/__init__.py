"""From the candidates of a request to a list: features, the model behind its lock, what of its list is shown."""
