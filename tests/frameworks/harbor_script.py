"""Runs harbor's own command line several times in one process, since its import takes 10 s of CPU.

Takes a JSON list of lists of arguments. Runs in harbor's environment, with nothing of the tests.
"""

import json
import sys

from harbor.cli.main import app

for arguments in json.loads(sys.argv[1]):
    app(arguments, standalone_mode=False)
