"""A complete response of an upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from sandlot_gateway.core.bad_json import NOT_JSON

from .errors import UpstreamError
from .wire import Headers


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response."""

    status: int
    headers: Headers  # names in lower case
    body: bytes

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for key, value in self.headers if key == wanted), None)

    def json(self) -> Any:
        """Decode the body as JSON. Raises UpstreamError if it is invalid."""
        try:
            return msgspec.json.decode(self.body)
        except NOT_JSON as error:
            raise UpstreamError(f"the response (status {self.status}) is not JSON: {error}") from error
