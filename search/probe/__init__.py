"""Candidates cut from pretrained nets, judged by a closed-form classifier on their features instead of a training."""
