"""Readers of data sets, one kind of set a file; registry.py lists them."""
