"""What the parts of a world of lives have met and only logged."""

from __future__ import annotations

import logging


class Faults(logging.Handler):
    """What a part has met and logged, where it would go on all the same."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))
