"""Finds pods for a Prometheus as its own service discovery does, with the same labels; Debian's build has none of Kubernetes.

It asks by HTTP each second: `/ServiceMonitor?namespace=…` is the role `endpointslice`, `/PodMonitor?namespace=…` the role `pod`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes import client as official
from kubernetes import config as official_config

from tests.kubernetes.stack import Stack

META = "__meta_kubernetes_"
_Group = dict[str, Any]
_Resource = dict[str, Any]


def label(name: str) -> str:
    """The part of a discovered label that stands for this one of Kubernetes."""
    return re.sub(r"\W", "_", name)


@contextmanager
def discovery(stack: Stack, address: str) -> Iterator[str]:
    """The URL of one that listens at this address."""
    with official_config.new_client_from_config(config_file=stack.kubeconfig, context=stack.context) as api:
        lists = {"/ServiceMonitor": _endpoints, "/PodMonitor": _pods}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = urlsplit(self.path)
                (namespace,) = parse_qs(asked.query)["namespace"]
                body = json.dumps(lists[asked.path](official.CoreV1Api(api), namespace)).encode()
                # A Prometheus that ends waits for no answer.
                with suppress(ConnectionError):
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        with ThreadingHTTPServer((address, 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.1,))
            thread.start()
            try:
                yield f"http://{address}:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()


def _pods(api: official.CoreV1Api, namespace: str) -> list[_Group]:
    return [
        _group(
            pod,
            port["containerPort"],
            {**_labels("pod", pod), f"{META}pod_container_port_name": port.get("name", "")},
        )
        for pod in _items(api.list_namespaced_pod, namespace)
        if "podIP" in pod["status"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    ]


def _endpoints(api: official.CoreV1Api, namespace: str) -> list[_Group]:
    pods = {pod["metadata"]["name"]: pod for pod in _items(api.list_namespaced_pod, namespace)}
    services = {each["metadata"]["name"]: each for each in _items(api.list_namespaced_service, namespace)}
    slices = _items(official.DiscoveryV1Api(api.api_client).list_namespaced_endpoint_slice, namespace)
    groups: list[_Group] = []
    for each in slices:
        service = services.get(each["metadata"]["labels"]["kubernetes.io/service-name"])
        for endpoint in each.get("endpoints") or []:
            pod = pods.get(endpoint.get("targetRef", {}).get("name", ""))
            if service is not None and pod is not None and "podIP" in pod["status"]:
                for port in each["ports"]:
                    more = {
                        f"{META}endpointslice_port_name": port.get("name", ""),
                        **_labels("service", service),
                    }
                    groups.append(_group(pod, port["port"], more))
    return groups


def _items(read: Callable[..., Any], namespace: str) -> list[_Resource]:
    return json.loads(read(namespace, _preload_content=False).data)["items"]


def _group(pod: _Resource, port: int, more: dict[str, str]) -> _Group:
    labels = {
        f"{META}namespace": pod["metadata"]["namespace"],
        f"{META}pod_name": pod["metadata"]["name"],
        f"{META}pod_container_name": pod["spec"]["containers"][0]["name"],
        f"{META}pod_phase": pod["status"]["phase"],
    }
    return {"targets": [f"{pod['status']['podIP']}:{port}"], "labels": labels | more}


def _labels(kind: str, resource: _Resource) -> dict[str, str]:
    metadata = resource["metadata"]
    labels = {
        f"{META}{kind}_label_{label(name)}": value for name, value in metadata.get("labels", {}).items()
    }
    return {f"{META}{kind}_name": metadata["name"], **labels}
