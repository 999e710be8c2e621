"""What nets are trained on: sets by name, split once. Knows no search; loads torch only for torchvision's sets."""
