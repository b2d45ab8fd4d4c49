"""Who may have an image without another question to the registry."""

from __future__ import annotations

from sandlot_node.access import EVERYONE, MOST_PROOFS, Access
from sandlot_node.images import ImageId

IMAGE, OTHER = ImageId("sha256:1"), ImageId("sha256:2")
TAG, DIGEST = "example.com/a:1", "example.com/a@sha256:0"


def access() -> Access:
    return Access(tag_seconds=10, tenant_seconds=20)


def test_an_anonymous_pull_is_a_proof_for_every_tenant() -> None:
    proofs = access()
    proofs.prove(TAG, EVERYONE, IMAGE, now=0)
    assert proofs.find(TAG, "anne", now=9) == IMAGE
    assert proofs.find(TAG, EVERYONE, now=9) == IMAGE
    assert proofs.find(TAG, "anne", now=10) is None, "the tag may mean another image by now"


def test_a_tenants_credentials_are_a_proof_for_it_alone() -> None:
    proofs = access()
    proofs.prove(DIGEST, "anne", IMAGE, now=0)
    assert proofs.find(DIGEST, "anne", now=19) == IMAGE
    assert proofs.find(DIGEST, "ben", now=1) is None
    assert proofs.find(DIGEST, EVERYONE, now=1) is None
    assert proofs.find(DIGEST, "anne", now=20) is None


def test_a_proof_is_of_one_name() -> None:
    proofs = access()
    proofs.prove(TAG, "anne", IMAGE, now=0)
    assert proofs.find("example.com/b:1", "anne", now=1) is None


def test_what_was_public_by_digest_stays_known() -> None:
    proofs = access()
    proofs.prove(DIGEST, EVERYONE, IMAGE, now=0)
    proofs.expire(now=1e9)
    assert proofs.find(DIGEST, "anne", now=1e9) == IMAGE
    proofs.forget(IMAGE)
    assert proofs.find(DIGEST, "anne", now=1e9) is None


def test_a_refusal_ends_a_proof() -> None:
    proofs = access()
    proofs.prove(TAG, "anne", IMAGE, now=0)
    proofs.prove(TAG, "ben", IMAGE, now=0)
    proofs.deny(TAG, "anne")
    assert proofs.find(TAG, "anne", now=1) is None
    assert proofs.find(TAG, "ben", now=1) == IMAGE


def test_expired_and_forgotten_proofs_are_gone() -> None:
    proofs = access()
    proofs.prove(TAG, "anne", IMAGE, now=0)
    proofs.prove(TAG, "ben", OTHER, now=5)
    proofs.expire(now=10)
    assert proofs.find(TAG, "anne", now=0) is None
    assert proofs.find(TAG, "ben", now=10) == OTHER


def test_of_too_many_proofs_of_an_image_the_oldest_are_forgotten() -> None:
    proofs = access()
    names = [f"example.com/{number}@sha256:0" for number in range(MOST_PROOFS)]
    proofs.prove(DIGEST, "anne", OTHER, now=0)
    for name in (*names, names[0], DIGEST):
        proofs.prove(name, EVERYONE, IMAGE, now=0)
    assert proofs.find(names[1], EVERYONE, now=0) is None
    assert all(proofs.find(name, EVERYONE, now=0) == IMAGE for name in (names[0], names[2], DIGEST))
    assert proofs.find(DIGEST, "anne", now=0) == IMAGE, "what everyone may have comes first"
    proofs.forget(IMAGE)
    assert proofs.find(names[2], EVERYONE, now=0) is None
    assert proofs.find(DIGEST, "anne", now=0) == OTHER


def test_a_name_that_means_another_image_proves_that_one() -> None:
    proofs = access()
    proofs.prove(TAG, EVERYONE, IMAGE, now=0)
    proofs.prove(TAG, EVERYONE, OTHER, now=1)
    proofs.forget(IMAGE)
    assert proofs.find(TAG, EVERYONE, now=2) == OTHER
