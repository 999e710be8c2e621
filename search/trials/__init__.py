"""What runs next and what is known: trials, their controller, schedulers, the study. Knows no Ray."""
