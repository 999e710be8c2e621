"""A run as one HTML page that needs no network: plots, tables and drawings, each with a line on how to read it."""
