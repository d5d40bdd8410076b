"""A drafter for a published text model; cli.py has the commands."""
import sys

from .cli import main

sys.exit(main())
