"""Training one net. Knows no search, no Ray and no Optuna, so it runs alone on a bare GPU machine."""
