"""A load test of a running service: how fast, how many, and does it learn meanwhile?"""
