"""`python -m alternas`."""

import os
import sys

if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    del sys.path[0]  # as of `alternas`: a file of the current folder that is called torch.py hides no package

from .cli.app import main

main()
