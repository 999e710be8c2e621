"""`python -m alternas`."""

from .cli.app import main

main()
