"""What to propose: strategies as Optuna samplers, their surrogate and learning curves. Knows no Ray."""

from __future__ import annotations
