"""Measured latency: of one net (measure.py), of a run's nets (nets.py), and the command."""
