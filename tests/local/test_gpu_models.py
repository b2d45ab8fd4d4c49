"""Which GPUs a type means: as Prime's clients and Kubernetes' labels write it, against the driver's names."""

from __future__ import annotations

import pytest
from sandlot_gateway.backends.local.gpu_models import is_type

H100, L40S, RTX = "NVIDIA H100 80GB HBM3", "NVIDIA L40S", "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(
    ("model", "wanted", "fits"),
    [
        (H100, "H100", True),
        (H100, "h100_80gb", True),
        (H100, "NVIDIA-H100-80GB-HBM3", True),
        (H100, "H100_94GB", False),
        (H100, "A100_80GB", False),
        (H100, "H100_PCIE", False),
        ("NVIDIA A100-SXM4-80GB", "A100_80GB", True),
        (L40S, "L40S_48GB", True),
        (L40S, "L4", False),
        (RTX, "RTX4090_24GB", True),
        (RTX, "RTX_4090", True),
        (RTX, "RTX", True),
        (RTX, "24GB", False),
        (RTX, "-", False),
        ("", "H100", False),
    ],
)
def test_a_type_is_words_of_the_model(model: str, wanted: str, fits: bool) -> None:
    assert is_type(model, wanted) is fits
