"""Saved rows of `compare` in Python: the one place that reads them, asks them, and says them in words. It imports nothing of the project:
plots, the report and the pages' generator build on it."""
