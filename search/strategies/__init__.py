"""What to propose: strategies, their surrogate and learning curves. Knows no Ray."""
