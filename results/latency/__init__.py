"""Measured latency: of one net (measure.py), of a run's nets (runs.py), and the command."""
