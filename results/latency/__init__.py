"""Measured latency: of one net (on_this_machine.py), of a run's nets (nets.py), its file (measurements.py).

The command is in cli/analyze.py.
"""
