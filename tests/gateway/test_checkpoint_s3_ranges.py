"""Ranges of packs are read over connections that are used again."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlsplit

from sandlot_gateway.checkpoints.s3.bucket import Bucket
from sandlot_gateway.checkpoints.s3.http import Http
from sandlot_gateway.checkpoints.s3.receiving import PackReading
from sandlot_gateway.checkpoints.s3.signing import Credentials
from sandlot_gateway.s3_place import place

from tests.s3.http_servers import answering
from tests.s3.relay import relaying


def test_many_runs_of_a_pack_are_read_over_one_connection() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests"}
    runs = [(number * 5000, number * 5000 + 1000) for number in range(20)]
    with answering(lambda method, path: (206, bytes(1000))) as url:
        port = urlsplit(url).port
        assert port is not None
        with relaying(port) as relay:
            http = Http(
                place("s3://bucket/", endpoint=f"http://127.0.0.1:{relay.port}"),
                credentials=Credentials(keys),
            )
            with closing(http), closing(PackReading(Bucket(http), "pack", runs=runs)) as reading:
                for begin, _ in runs:
                    assert reading.read_at(begin, 500) == bytes(500)
                    assert reading.read_at(begin + 600, 400) == bytes(400)
            assert relay.connections == 1
