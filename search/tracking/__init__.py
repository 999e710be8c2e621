"""Experiment trackers: what a run is, how its trainings go, and what came of it, for MLflow, W&B and TensorBoard."""
