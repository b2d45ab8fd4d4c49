"""`python -m sandlot` is the same as `sandlot`."""

from sandlot.cli import main

main()
