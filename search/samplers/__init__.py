"""What to train next: strategies, schedulers and the ledger. Knows no Ray."""

from __future__ import annotations
