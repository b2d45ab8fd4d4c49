"""What a pod needs of its node: its requests as Kubernetes counts them, its node selector and its tolerations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from sandlot_kube.objects import PodSpec, Toleration

PODS = "pods"  # a node's number of pods, of which each takes one
_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]*)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of a pod, the same for all pods of one shape. `requests` are sorted by name and positive."""

    requests: tuple[tuple[str, int], ...]
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


def of_spec(spec: PodSpec) -> Needs:
    """Return the needs of a pod. Raises ValueError for a quantity that the API server would reject."""
    requests = _sum(one.resources.requests for one in spec.containers)
    for container in spec.init_containers:  # one after the other, before the containers
        for name, amount in _sum([container.resources.requests]).items():
            requests[name] = max(requests.get(name, 0), amount)
    for name, amount in _sum([spec.overhead or {}]).items():
        requests[name] = requests.get(name, 0) + amount
    requests[PODS] = 1
    return Needs(
        tuple(sorted((name, amount) for name, amount in requests.items() if amount > 0)),
        tuple(sorted((spec.node_selector or {}).items())),
        spec.tolerations,
    )


def allocatable(resources: Mapping[str, str]) -> dict[str, int]:
    """Return what a node has, in the units of `Needs.requests`: CPU in millicores. Raises ValueError."""
    return {name: math.floor(_amount(name, text)) for name, text in resources.items()}


def _sum(all_requests: Iterable[Mapping[str, str]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for requests in all_requests:
        for name, text in requests.items():
            total[name] = total.get(name, 0) + math.ceil(_amount(name, text))
    return total


@lru_cache(4096)
def _amount(name: str, text: str) -> Fraction:
    found = _QUANTITY.fullmatch(text)
    if found is None or found[1] in ("", "+", "-", "."):
        raise ValueError(f"{name}: {text!r} is not a quantity")
    number, exponent, suffix = Fraction(found[1]), found[2], found[3] or ""
    if exponent is not None:
        number *= Fraction(10) ** int(exponent)
    elif suffix in _BINARY:
        number *= 1 << _BINARY[suffix]
    else:
        number *= Fraction(10) ** _DECIMAL[suffix]
    return number * 1000 if name == "cpu" else number
