"""Lets a result go: exports that need no alternas to run."""
