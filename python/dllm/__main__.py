"""`python -m dllm VERB`: what the program `dllm` does, with decoders written in Python."""

import sys

from ._compare import main

if __name__ == "__main__":
    if sys.argv[1:2] != ["compare"]:
        print("usage: python -m dllm compare [--plugin FILE.py] --items FILE \"NAME: OPTIONS\" ...", file=sys.stderr)
        sys.exit(0 if sys.argv[1:2] in (["-h"], ["--help"]) else 2)
    sys.exit(main(sys.argv[2:]))
