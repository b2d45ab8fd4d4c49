"""Routes whose modules are imported upon the first request, so that an idle sidecar saves their memory."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .http import Http
    from .instance import Instance


def _files(http: Http, instance: Instance) -> None:
    from .file_routes import FileRoutes

    FileRoutes(instance).add_to(http)


def _watches(http: Http, instance: Instance) -> None:
    from .watch_routes import WatchRoutes

    WatchRoutes(instance).add_to(http)


def _layers(http: Http, instance: Instance) -> None:
    from .layer_routes import LayerRoutes

    LayerRoutes(instance).add_to(http)


def _commands(http: Http, instance: Instance) -> None:
    from .command_routes import CommandRoutes

    CommandRoutes(instance).add_to(http)


def _tunnels(http: Http, instance: Instance) -> None:
    from .tunnel import TunnelRoutes

    TunnelRoutes(instance).add_to(http)


def _datagrams(http: Http, instance: Instance) -> None:
    from .datagrams import DatagramRoutes

    DatagramRoutes(instance).add_to(http)


LATE = {
    "/v1/files": _files,
    "/v1/files/stat": _files,
    "/v1/files/list": _files,
    "/v1/files/mkdir": _files,
    "/v1/files/move": _files,
    "/v1/files/chmod": _files,
    "/v1/files/watch": _watches,
    "/v1/upload": _files,
    "/v1/download": _files,
    "/v1/read-file": _files,
    "/v1/checkpoint": _layers,
    "/v1/restore": _layers,
    "/v1/share": _layers,
    "/v1/tcp": _tunnels,
    "/v1/udp": _datagrams,
    "/v1/commands": _commands,
    "/v1/commands/output": _commands,
}


def add_to(http: Http, instance: Instance) -> None:
    """Register these routes."""
    for path, load in LATE.items():
        http.add_late(path, lambda load=load: load(http, instance))
