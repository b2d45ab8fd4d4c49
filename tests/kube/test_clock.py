"""Times as Kubernetes writes them."""

from __future__ import annotations

from sandlot_kube import clock


def test_times() -> None:
    assert clock.text(0.0) == "1970-01-01T00:00:00Z"
    assert clock.seconds("1970-01-01T00:01:00Z") == 60.0
    assert clock.seconds("1970-01-01T00:01:00.5+00:00") == 60.5
    assert clock.seconds("soon") is None
