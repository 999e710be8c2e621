"""Data sets: read by name, split once. Knows no search; torch is imported only to read torchvision's sets."""
