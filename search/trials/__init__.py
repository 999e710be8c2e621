"""Trials: proposal, controller, early-stopping schedulers, latencies, the Optuna study. Knows no Ray."""
