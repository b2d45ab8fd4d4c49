"""The gateway's rate and p99 on one core with stub sidecars, and its share of a bare server's rate."""

from __future__ import annotations

import statistics

from loadtests.gateway.request_rate import measure
from loadtests.reading import Reading


def gateway(*, rounds: int = 3) -> dict[str, Reading]:
    """Measure `gateway_rate` (1,000 requests/s) and `gateway_p99` (ms), best of the rounds, and `bare_over_gateway`.

    The best, not the median, because other load on the machine can only slow it down. `bare_over_gateway` is the rate of
    an ASGI server that forwards nothing, on the same core, over the gateway's rate; the median of the rounds.
    """
    runs = [measure(seconds=4.0) for _ in range(rounds)]
    failures = sum(run["failures"] for run in runs)
    if failures:
        raise RuntimeError(f"{failures:.0f} requests through the gateway failed")
    best = max(runs, key=lambda run: run["requests_k_per_s"])
    parts = {
        "rounds": ", ".join(f"{run['requests_k_per_s']:.1f} k/s" for run in runs),
        "a bare ASGI server": f"{best['bare_k_per_s']:.1f} k/s",
        "stubs without gateway": f"{best['floor_k_per_s']:.1f} k/s",
        "p50": f"{best['p50_ms']:.2f} ms",
        "CPU a request": f"{best['cpu_us_per_request']:.0f} µs",
        "memory, 10,000 sandboxes": f"{best['rss_mb']:.0f} MB",
    }
    shares = [run["bare_k_per_s"] / run["requests_k_per_s"] for run in runs]
    tails = [run["p99_ms"] for run in runs]
    return {
        "gateway_rate": Reading(value=best["requests_k_per_s"], parts=parts),
        "gateway_p99": Reading(
            value=min(tails), parts={"rounds": ", ".join(f"{tail:.1f} ms" for tail in tails), "callers": "64"}
        ),
        "bare_over_gateway": Reading(
            value=statistics.median(shares),
            parts={
                "rounds": ", ".join(f"{share:.2f}" for share in shares),
                "the bare server's p99": f"{best['bare_p99_ms']:.1f} ms",
            },
        ),
    }
