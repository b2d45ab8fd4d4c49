"""Request and response models of the group routes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator
from sandlot_contract.ports import SIDECAR_PORT

from sandlot_gateway.control.field_types import MOST_OF_GROUP, GroupCount, Port, ServiceName, Strict
from sandlot_gateway.control.models import CreateRequest, SandboxResponse

MOST_DEADLINE = 3600  # seconds
MOST_PORTS = 64  # of all services of a group: each is a listener in each of its sandboxes


class GroupMember(CreateRequest):
    """A create request, for `count` sandboxes. The group has the idempotency key and the time to wait."""

    count: GroupCount = 1
    service: ServiceName | None = Field(
        None, description="Its name for the other sandboxes of the group, which may connect to its `ports`."
    )
    ports: list[Port] | None = Field(None, max_length=16, description="TCP ports of the service.")

    @model_validator(mode="after")
    def _of_group(self) -> GroupMember:
        for name in ("idempotency_key", "wait_seconds"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: the group has one for all its sandboxes; leave it out here")
        if self.ports is not None and self.service is None:
            raise ValueError(
                "ports: other sandboxes need a name to connect to; set service, or leave ports out"
            )
        if SIDECAR_PORT in (self.ports or ()):
            # Each sandbox's sidecar listens there itself, on Kubernetes in the sandbox's own network.
            raise ValueError(
                f"ports: {SIDECAR_PORT} is a port of Sandlot's own in each sandbox; let the service listen on another one"
            )
        if self.ports is not None and len(set(self.ports)) != len(self.ports):
            raise ValueError("ports: has a port twice; name each once")
        if self.service is not None and self.count != 1:
            raise ValueError("count: a service is one sandbox; leave count out, or give each its own service")
        return self


class GroupRequest(Strict):
    members: list[GroupMember] = Field(
        min_length=1, max_length=64, description="What to create, all or none."
    )
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=128, description="Requests with the same key get the same group."
    )
    wait_seconds: float | None = Field(
        None, ge=0, le=25, description="Seconds to wait for all sandboxes before answering; default 10."
    )
    deadline_seconds: float | None = Field(
        None,
        gt=0,
        le=MOST_DEADLINE,
        description="Seconds from the first request in which all sandboxes must run, else none; default 300.",
    )

    @model_validator(mode="after")
    def _together(self) -> GroupRequest:
        total = sum(member.count for member in self.members)
        if total > MOST_OF_GROUP:
            raise ValueError(
                f"members: {total} sandboxes, and a group has at most {MOST_OF_GROUP}; create several groups"
            )
        if len({member.run_id or member.run for member in self.members}) > 1:
            raise ValueError("members: they name several runs; a group is of one run")
        if len({(member.run_id, member.run_epoch) for member in self.members}) > 1:
            raise ValueError("members: run_id and run_epoch must be the same for all; a group is of one run")
        _check_services(self.members)
        return self


def _check_services(members: list[GroupMember]) -> None:
    """Check what members' services have in common. Raises ValueError."""
    names: dict[str, int] = {}
    owners: dict[int, str] = {}
    for number, member in enumerate(members):
        if member.service is None:
            continue
        if member.service in names:
            raise ValueError(
                f"members.{number}.service: {member.service!r} is members.{names[member.service]}, too; choose another name"
            )
        names[member.service] = number
        for port in member.ports or ():
            if port in owners:
                # A server at 0.0.0.0 and a listener for another service cannot have the same port in one network.
                raise ValueError(
                    f"members.{number}.ports: {port} is a port of {owners[port]!r}, too, and a port stands for one"
                    f" service of a group; let {member.service!r} listen on another one"
                )
            owners[port] = member.service
    if len(owners) > MOST_PORTS:
        raise ValueError(
            f"members: their services have {len(owners)} ports, and a group at most {MOST_PORTS}"
        )
    for number, member in enumerate(members):
        if names and member.checkpoint_id is not None:
            # Its /etc/hosts may name the services of another group.
            raise ValueError(
                f"members.{number}.checkpoint_id: cannot be restored into a group with services; name an image"
            )


class GroupResponse(BaseModel):
    id: str
    status: Literal["PENDING", "RUNNING", "FAILED", "ENDED"]
    size: int
    idempotency_key: str | None = Field(
        description="While PENDING: send the request again with this key, within 60 s."
    )
    queuePosition: int | None = Field(description="Position in the queue while PENDING; 1 is next.")
    verdict: str | None = Field(description="With FAILED: of the sandbox that ended before all ran.")
    message: str | None = Field(description="With FAILED: why.")
    sandboxes: list[SandboxResponse] = Field(description="All of them, in the order of the request, or none.")
