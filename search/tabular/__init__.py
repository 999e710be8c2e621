"""The tabular benchmark: strategies run on a table of trained nets, with a simulated clock."""
