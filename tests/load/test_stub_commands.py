"""What stub sidecars count: commands, those that wait, and the connections of callers that come and go."""

from __future__ import annotations

from loadtests.cluster.stub_commands import HOLD, Count, Ended, StubCommands


def test_a_closed_connection_counts_once_and_its_command_goes_on() -> None:
    commands = StubCommands()
    ended: list[Ended] = []

    def run(op: str, connection: object, command: str = HOLD) -> None:
        body = b'{"command": "%s"}' % command.encode()
        commands.run(op, body, sandbox="sb", connection=connection, answer=ended.append)

    first, second, idle = object(), object(), object()
    run("a", first)
    run("b", second)
    run("c", idle, "true")
    assert commands.count() == Count(runs=3, held=2, attached=2, dropped=0)
    commands.left(first)
    commands.left(first)
    commands.left(idle)
    assert commands.count() == Count(runs=3, held=2, attached=1, dropped=1)
    run("a", object())
    assert commands.count() == Count(runs=3, held=2, attached=2, dropped=1), (
        "it attached again and did not run twice"
    )
    commands.release()
    commands.left(second)
    assert commands.count() == Count(runs=3, held=0, attached=0, dropped=1)
    assert len(ended) == 3
