"""Builds the environment of an op: the image's, then the claim's, then the claim's secrets."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# nproc and OpenMP, algebra libraries with variables of their own, Go, Rust's rayon, Python from 3.13 on.
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "GOMAXPROCS",
    "RAYON_NUM_THREADS", "PYTHON_CPU_COUNT",
)  # fmt: skip
VISIBLE = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
DRIVER = {
    "PATH": "/usr/local/nvidia/bin",
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib",
}  # as in executor/gpus.py
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(
    *,
    image: dict[str, str],
    configured: dict[str, str],
    claim: dict[str, Any] | None,
    threads: float | None,
    gpus: int = 0,
) -> dict[str, str]:
    """Return the environment. `image`: in a pod the container's own.

    `threads`: cores that the sandbox may use, if its programs see more than that. `gpus`: number of its GPUs.
    """
    env = {"PATH": DEFAULT_PATH, **image, **configured}
    if gpus:
        # CUDA and NVML number the GPUs whose device files they can open.
        env |= dict.fromkeys(VISIBLE, ",".join(map(str, range(gpus))))
    if claim is not None:
        env |= claim["env"]
        env |= claim["secrets"]
        env["SANDLOT_SANDBOX_ID"] = claim["sandbox_id"]
    if gpus:
        # After the owner's: a program that does not find the driver of its machine sees no GPU.
        for name, path in DRIVER.items():
            paths = env[name].split(":") if env.get(name) else []
            env[name] = ":".join(paths if path in paths else [*paths, path])
    if threads is not None:
        # Programs that count the node's processors would start so many threads that these starve each other.
        env = dict.fromkeys(THREADS, str(max(1, math.ceil(threads)))) | env
    return env
