"""What to propose: strategies, their surrogate and learning curves. Knows no Ray."""

from __future__ import annotations
