"""Settings that are missing or wrong are refused by name."""

from __future__ import annotations

import pytest
from sandlot_controller.settings import BadSettings, load
from sandlot_controller.tokens import InstanceTokens


def test_a_short_key_is_refused() -> None:
    with pytest.raises(BadSettings, match="SANDLOT_KEY_FILE"):
        InstanceTokens(b"short")


def test_a_missing_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDLOT_NAMESPACE", "x")
    monkeypatch.setenv("SANDLOT_STARTS_PER_NODE", "0")
    with pytest.raises(BadSettings) as caught:
        load()
    assert "SANDLOT_KEY_FILE: Field required" in str(caught.value)
    assert "SANDLOT_STARTS_PER_NODE" in str(caught.value)
    assert "SANDLOT_NAMESPACE" not in str(caught.value)
