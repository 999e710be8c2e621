"""What a search trains next: proposals, limits, schedulers, weights, measuring, finetuning. No Ray, no torch."""
