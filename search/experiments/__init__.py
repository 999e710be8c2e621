"""Trainings outside a search: retraining, transfer, build-up from weights, and the papers' studies."""
