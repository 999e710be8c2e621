"""What nets are made of: residual, attention, modern and transformer blocks, and what each costs."""
