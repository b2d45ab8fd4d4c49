"""Messages between server and executor: each with its own descriptors, and what is none is refused."""

from __future__ import annotations

import os
import socket

from hypothesis import given
from hypothesis import strategies as st
from sandlot_sidecar.executor import wire


@given(
    messages=st.lists(
        st.tuples(
            st.dictionaries(st.text(max_size=5).filter(lambda key: key != "fds"), st.text(max_size=200)),
            st.integers(0, 3),
        ),
        max_size=6,
    )
)
def test_the_wire_brings_messages_with_their_own_descriptors(
    messages: list[tuple[dict[str, str], int]],
) -> None:
    ours, theirs = socket.socketpair()
    pipes: list[tuple[int, int]] = []
    try:
        for message, count in messages:
            made = [os.pipe() for _ in range(count)]
            pipes += made
            wire.send(ours, message, [read for read, _ in made])
        ours.shutdown(socket.SHUT_WR)
        decoder, received = wire.Decoder(), []
        while (some := decoder.receive(theirs)) is not None:
            received += some
        assert [(message, len(fds)) for message, fds in received] == messages
        inodes = [os.fstat(read).st_ino for read, _ in pipes]
        assert [os.fstat(fd).st_ino for _, fds in received for fd in fds] == inodes
    finally:
        for _, fds in received:
            wire.close_all(fds)
        for read, write in pipes:
            os.close(read)
            os.close(write)
        ours.close()
        theirs.close()


@given(data=st.binary(max_size=200))
def test_the_wire_refuses_what_is_no_message(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        decoder = wire.Decoder()
        try:
            while (messages := decoder.receive(theirs)) is not None:
                assert all(isinstance(message, dict) for message, _ in messages)
        except wire.WireError:
            pass
