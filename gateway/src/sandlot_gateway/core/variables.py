"""The sizes of a sandbox's environment, above which the kernel starts no command."""

ENVIRONMENT_BYTES = 1 << 20  # of all names and values; the kernel's limit is near 2 MiB
VARIABLE_BYTES = 131_000  # of one name and value: the kernel rejects a NAME=VALUE string of 128 KiB


def size_of(name: str, value: str) -> int:
    return len(name.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace"))
