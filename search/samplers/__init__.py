"""What to train next: strategies, ladders and the ledger. Knows no Ray."""

from __future__ import annotations
