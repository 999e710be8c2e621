"""`python -m alternas`."""

from .cli import main

main()
