"""In what a sandbox differs from a container on purpose, by where it runs."""

from __future__ import annotations

from tests.conformance.differences import Difference, Meant

_NETWORK_FILES = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_DIRECTORIES = ("/etc", "/tmp", "/var", "/var/tmp")


def _made(difference: Difference) -> bool:
    return difference.attribute == "type" and difference.container is None


LOCAL = (
    Meant(
        "name resolution is the sandbox's own: a container runtime mounts these files, too",
        lambda d: d.what.removeprefix("/usr") in _NETWORK_FILES,
    ),
    Meant(
        "an image without these directories gets them: commands and uploads need a /tmp",
        lambda d: d.what in _DIRECTORIES and _made(d),
    ),
    Meant(
        "the gateway does not create an image's device nodes: one could open the machine's disk",
        lambda d: str(d.container).endswith(" device") and d.sandbox is None,
    ),
    Meant(
        "containerd skips a layer's entry for the root itself, Docker and Podman apply it",
        lambda d: d.what == "/" and d.attribute in ("mode", "uid", "gid", "xattrs"),
    ),
    Meant(
        "a command can tell its sandbox and its op",
        lambda d: d.attribute in ("variable SANDLOT_SANDBOX_ID", "variable SANDLOT_OP"),
    ),
    Meant(
        "an image whose config has variables, but no PATH, gets the usual one, as with Docker",
        lambda d: d.attribute == "variable PATH" and d.container is None,
    ),
    Meant(
        "/proc, /sys and /dev are mounts; what is below them is not the image's",
        lambda d: d.what in ("/proc", "/sys", "/dev"),
    ),
)
_THREADS = ("GOMAXPROCS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
            "RAYON_NUM_THREADS", "PYTHON_CPU_COUNT")  # fmt: skip
RUNC = (
    *LOCAL,
    Meant(
        "libraries that count the node's cores are told those of the sandbox",
        lambda d: d.attribute.removeprefix("variable ") in _THREADS and d.container is None,
    ),
)
GVISOR = (
    *RUNC,
    Meant(
        "the modes of /dev/mqueue and /dev/pts are gVisor's own",
        lambda d: d.attribute in ("device mqueue", "device pts"),
    ),
    Meant(
        "gVisor runs a set-user-ID program as its owner only with its option allow-suid",
        lambda d: (
            (d.attribute == "ids" and d.container[0] != d.container[1])
            or (d.attribute == "variable GOTRACEBACK" and d.sandbox is None)
        ),
    ),
    Meant(
        "gVisor shows no device nodes of an image",
        lambda d: d.sandbox == "refused" and str(d.container).endswith(" device"),
    ),
)
