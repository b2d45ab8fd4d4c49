"""Several master keys: which one signs, what is read from the files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandlot_contract.keyring import BadKeyring, Keyring, key_id, read

OLD, NEW = b"o" * 32, b"n" * 32


def test_the_first_key_signs_and_the_others_are_known_by_their_ids() -> None:
    keys = Keyring(NEW, OLD, NEW)
    assert list(keys) == [key_id(NEW), key_id(OLD)]
    assert keys.signing_id == key_id(NEW)
    assert keys.key(key_id(OLD)) == OLD
    assert keys.key(None) == keys.key("unknown") == NEW
    assert keys == Keyring(NEW, OLD) != Keyring(OLD, NEW)


def test_an_id_does_not_tell_its_key() -> None:
    assert len(key_id(OLD)) == 16
    assert key_id(OLD) not in OLD.hex()


def test_files_beside_the_key_whose_names_begin_with_its_name_are_valid_too(tmp_path: Path) -> None:
    for name, key in (
        ("master", NEW),
        ("master-old", OLD),
        ("masters", b"short"),
        ("other-master", b"short"),
    ):
        (tmp_path / name).write_bytes(key)
    assert read(tmp_path / "master") == Keyring(NEW, OLD)


@pytest.mark.parametrize(("name", "key"), [("master", b"short"), ("master-old", b""), ("master", None)])
def test_what_is_no_key_is_named(tmp_path: Path, name: str, key: bytes | None) -> None:
    (tmp_path / "master").write_bytes(NEW)
    if key is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(key)
    with pytest.raises(BadKeyring, match=f"{tmp_path / name}") as caught:
        read(tmp_path / "master")
    assert NEW.decode() not in str(caught.value)
