"""`python -m fastllmload`: the same as the command `fastllmload`."""

import sys

from fastllmload.cli.main import main

sys.exit(main())
