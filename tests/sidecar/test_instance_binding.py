"""An instance that a tenant has used is bound to it; see sandlot_sidecar/core/instance.py."""

from __future__ import annotations

import pytest
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.instance import Phase

from tests.sidecar.instance_states import ANOTHERS, MAKE, MINE, STRANGERS, begin_reset, claim_of, made, take


def test_only_the_tenant_that_used_it_gets_it_again() -> None:
    life = made("warm")
    assert (life.bound_to, life.uses) == (None, 0)
    for uses in range(1, 4):
        take(life, MINE)
        assert life.uses == uses - 1, "a claim in progress may still fail"
        life.claimed()
        assert (life.bound_to, life.uses) == ("t", uses)
        begin_reset(life, keep=False)
        life.emptied()
        life.built()
        assert (life.bound_to, life.uses) == ("t", uses)
        for tenant in ("u", None):
            with pytest.raises(ApiError) as caught:
                take(life, claim_of("sb-another", tenant=tenant))
            error = caught.value
            assert (error.status, error.code, error.extra) == (409, "bound", {"bound_to": "t"})
        assert life.phase is Phase.WARM


def test_an_owner_without_a_tenant_shares_it_with_no_tenant() -> None:
    life = made("warm")
    take(life, claim_of("sb-mine", tenant=None))
    life.claimed()
    begin_reset(life, keep=False)
    life.emptied()
    life.built()
    with pytest.raises(ApiError, match="another tenant used this instance"):
        take(life, ANOTHERS)
    assert take(life, claim_of("sb-another", tenant=None))


def test_a_claim_that_fails_binds_to_nobody() -> None:
    life = made("claiming")
    assert (life.bound_to, life.record.bound_to) == (None, "t"), "on disk before it is in force"
    life.record.withdraw()  # the policy of its egress was refused, and what was on disk is undone
    assert (life.bound_to, life.uses) == (None, 0)
    life.claim_failed()
    assert (life.record.bound_to, life.record.uses) == (None, 0)
    assert take(life, STRANGERS)
    life = made("claiming again")
    life.claim_failed()
    assert (life.bound_to, life.uses) == ("t", 1)


def test_a_reset_for_its_owner_is_no_further_use() -> None:
    life = made("resetting for its owner")
    life.emptied()
    life.built()
    assert (life.bound_to, life.uses) == ("t", 1)


def test_only_one_that_is_being_claimed_says_so() -> None:
    """Its phase in the contract is `warm`, and who asked for its owner meanwhile took it for free."""
    assert [name for name in MAKE if made(name).claiming] == ["claiming", "claiming again"]
