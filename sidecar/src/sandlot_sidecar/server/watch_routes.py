"""The route that watches directories."""

from __future__ import annotations

from ..core.errors import ApiError
from . import fields, file_query
from .file_watch import FileWatch
from .http import Route
from .watch_room import MOST_WATCHES, Room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .http import Http
    from .instance import Instance
    from .request import Request


class WatchRoutes:
    """Handler of `GET /v1/files/watch`."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._room = Room()

    def add_to(self, http: Http) -> None:
        """Register the route."""
        http.add("GET", "/v1/files/watch", Route(self.watch))

    async def watch(self, request: Request) -> None:
        """Send events until the client leaves."""
        query, instance, room = request.query(), self._instance, self._room
        watch = FileWatch(
            instance, room,
            path=file_query.path(query.get("path"), workdir=instance.ops.workdir),
            recursive=fields.query_flag(query, "recursive", default=False),
            acting=file_query.acting(dict(query)),
        )  # fmt: skip
        if len(room.watches) >= MOST_WATCHES:
            raise ApiError(
                409, "too_many_watches", f"this sandbox has {MOST_WATCHES} watches already: close one of them"
            )
        room.watches.add(watch)
        instance.use.cut_at_stop.add(watch.stop)
        instance.use.stream_begins()
        try:
            await watch.open()
            await watch.run(request)
        finally:
            watch.close()
            room.watches.discard(watch)
            instance.use.cut_at_stop.discard(watch.stop)
            instance.use.stream_ends()
