"""Run in a sandbox: allocates memory on the first GPU through libcuda alone, writes it and reads it back."""

from __future__ import annotations

import ctypes
import sys

BYTES = 64 << 20

cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(text))
        sys.exit(f"{name}: error {code}, {(text.value or b'unknown').decode()}")


count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
memory = ctypes.c_uint64()
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BYTES))
sent = bytes(range(256)) * (BYTES // 256)
back = ctypes.create_string_buffer(BYTES)
call("cuMemcpyHtoD_v2", memory, sent, ctypes.c_size_t(BYTES))
call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(BYTES))
call("cuMemFree_v2", memory)
print(count.value, "same" if back.raw == sent else "different")
