"""Measured latency: of one net (measure.py), of a run's nets (nets.py), its file (measurements.py).

The command is in cli/analyze.py.
"""
