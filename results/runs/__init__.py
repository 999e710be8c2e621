"""A run's folder: records, settings, weights; and which trained net of it is meant."""
