"""One bank of shared weights for every net of a space: its tensors, its training, its evaluation."""
