"""The ids of ops whose results are no longer kept."""

from __future__ import annotations

from sandlot_sidecar.core.idmemory import IdMemory


def test_a_million_ids_are_remembered_in_16_bytes_each_at_most() -> None:
    memory = IdMemory(capacity=8000)
    for number in range(20_000):
        memory.add(f"id-{number}")
    assert all(f"id-{number}" in memory for number in range(12_000, 20_000))
    assert not any(f"other-{number}" in memory for number in range(20_000))
    assert "id-0" not in memory
    assert sum(len(table) * 8 for table in memory._tables) <= 9 * 1000 * 8 * 4
