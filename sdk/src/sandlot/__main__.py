"""Runs the command line for `python -m sandlot`."""

from sandlot.cli import main

main()
