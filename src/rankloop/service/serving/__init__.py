"""The loaded rankers of a ranking worker and how they follow what is learned."""
