"""Learners of explicit grades, of the first results or of all. docs/learners/grades.md describes them."""
