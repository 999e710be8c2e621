"""timm's nets: made by name, converted to ours and back, counted."""
