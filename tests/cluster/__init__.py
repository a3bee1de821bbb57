"""Several hosts on one machine: network namespaces, a wire that breaks, and a checker that knows what clients heard."""
