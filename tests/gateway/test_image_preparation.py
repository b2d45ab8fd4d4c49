"""The preparation of a create's image, without a create."""

from __future__ import annotations

import asyncio
import gc

import pytest
from sandlot_gateway.engine.images import Preparation

from tests.gateway.test_claim_images import Images, prepared


@pytest.mark.filterwarnings("error")
async def test_a_create_that_is_cancelled_at_once_leaves_no_preparation_unawaited() -> None:
    async def ahead() -> None:
        raise AssertionError("must not begin")

    preparation = Preparation(Images(prepared, ahead=ahead), "a", tenant="t")
    preparation.cancel()
    await asyncio.sleep(0)
    del preparation
    gc.collect()
