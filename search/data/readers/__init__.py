"""Readers of data sets: one kind of source a file."""
