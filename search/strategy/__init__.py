"""What to train next: strategies, ladders and the ledger. Knows no Ray."""
