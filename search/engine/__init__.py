"""Where and when nets are trained. Ray lives in `pool` alone."""
