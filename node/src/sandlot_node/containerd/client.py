"""Calls containerd over its Unix socket: the few gRPC methods that the engine needs, as typed functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from sandlot_node.failures import ImageError, Kind

NAMESPACE = "k8s.io"  # of everything that the kubelet's pods use

_Answer = TypeVar("_Answer", bound=Message)
_CALL_SECONDS = 30.0


class Missing(Exception):
    """Raised if containerd does not have what a call names."""


class CallFailed(Exception):
    """Raised if containerd answered a call with an error; the message is containerd's."""

    def __init__(self, method: str, code: str, details: str) -> None:
        super().__init__(f"{method}: {code}: {details}")
        self.code = code
        self.details = details


class Client:
    """A channel to containerd. Must be created in a running event loop."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        options = [
            ("grpc.max_receive_message_length", 64 << 20),  # long lists exceed the default of 4 MiB
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),  # by default two minutes after containerd is back
        ]
        self._channel = grpc.aio.insecure_channel(f"unix://{socket}", options=options)

    async def close(self) -> None:
        await self._channel.close()

    async def call(
        self,
        method: str,
        request: Message,
        answer: type[_Answer],
        *,
        lease: str | None = None,
        seconds: float = _CALL_SECONDS,
    ) -> _Answer:
        """Call a method. Raises Missing, CallFailed, or ImageError if containerd does not answer."""
        parse: Callable[[bytes], _Answer] = answer.FromString
        stub = self._channel.unary_unary(method, request_serializer=_serialize, response_deserializer=parse)
        try:
            return await stub(request, metadata=_metadata(lease), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise self._failure(method, error) from error

    async def stream(
        self, method: str, request: Message, answer: type[_Answer], *, seconds: float = _CALL_SECONDS
    ) -> AsyncIterator[_Answer]:
        """Call a method that answers with a stream. Raises as `call`."""
        parse: Callable[[bytes], _Answer] = answer.FromString
        stub = self._channel.unary_stream(method, request_serializer=_serialize, response_deserializer=parse)
        try:
            async for part in stub(request, metadata=_metadata(None), timeout=seconds):
                yield part
        except grpc.aio.AioRpcError as error:
            raise self._failure(method, error) from error

    def _failure(self, method: str, error: grpc.aio.AioRpcError) -> Exception:
        code, details = error.code(), error.details() or ""
        if code == grpc.StatusCode.NOT_FOUND:
            return Missing(details)
        if code == grpc.StatusCode.UNAVAILABLE:
            return ImageError(
                Kind.UNAVAILABLE,
                f"containerd did not answer at {self._socket}: {details}. Try again; if it goes on, see its log",
            )
        return CallFailed(method, code.name, details)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _metadata(lease: str | None) -> tuple[tuple[str, str], ...]:
    namespace = (("containerd-namespace", NAMESPACE),)
    return namespace if lease is None else (*namespace, ("containerd-lease", lease))
