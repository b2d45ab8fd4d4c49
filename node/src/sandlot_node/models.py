"""Bodies of the node agent's API."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from .images import Auth, Image
from .ledger import Entry


class AuthBody(BaseModel):
    """Credentials of a registry: a name with a password, or an identity token."""

    model_config = ConfigDict(extra="forbid")

    username: str = Field("", max_length=1024)
    password: SecretStr = Field(SecretStr(""), max_length=16384)
    identity_token: SecretStr = Field(SecretStr(""), max_length=16384)

    def auth(self) -> Auth:
        return Auth(
            username=self.username,
            password=self.password.get_secret_value(),
            identity_token=self.identity_token.get_secret_value(),
        )


class PrepareBody(BaseModel):
    """An image to prepare."""

    model_config = ConfigDict(extra="forbid")

    image: str = Field(description="The image's name, `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`.", max_length=512)
    tenant: str | None = Field(
        None, description="Whose credentials these are; required with `auth`.", min_length=1, max_length=128
    )
    auth: AuthBody | None = Field(None, description="Credentials, if the image is private.")


class UseBody(BaseModel):
    """A slot that uses an image."""

    model_config = ConfigDict(extra="forbid")

    slot: str = Field(description="The name of the slot's pod.", min_length=1, max_length=253)


class ImageBody(BaseModel):
    """A prepared image."""

    status: Literal["ready"] = "ready"
    id: str = Field(description="The digest of the image's configuration.")
    rootfs: str = Field(description="Where its files are on the node; another path each time it is prepared.")
    names: list[str] = Field(description="The names by which it was asked for.")
    digests: list[str] = Field(
        description="Its names with the digest of its manifest, by which it can be pulled."
    )
    config: dict[str, Any] = Field(description="As in its image.json.")
    bytes: int = Field(description="Its bytes on disk, with those that other images share.")
    uses: list[str] = Field(description="The slots that use it.")


class UsedImageBody(ImageBody):
    """A prepared image that a slot has begun to use."""

    since: float = Field(description="When it began; a later use has a greater one.")


class ProgressBody(BaseModel):
    """A preparation that is not finished: ask again."""

    status: Literal["preparing"] = "preparing"
    phase: str = Field(description="waiting, resolving, pulling, unpacking or mounting.")
    done: int = Field(description="Compressed bytes of its layers that are on the node.")
    total: int | None = Field(description="Compressed bytes of all its layers; null: not known yet.")


class ImagesBody(BaseModel):
    images: list[ImageBody]


class BriefImageBody(BaseModel):
    """What of a prepared image tells of its names and space."""

    model_config = ConfigDict(extra="forbid")

    names: list[str]
    bytes: int
    uses: list[str]


class BriefImagesBody(BaseModel):
    images: list[BriefImageBody]
    preparing: list[str] = Field(description="The names that are being prepared, whoever asked for them.")


class UsageBody(BaseModel):
    """What the images take of the node's disk."""

    platform: str = Field(description="The node's, such as linux/amd64.")
    budget: int = Field(description="Bytes that prepared images may have.")
    used: int = Field(description="Bytes that they have; what several share counts once.")
    free: int = Field(description="Bytes that the file system has left.")
    images: int
    in_use: int


class FieldError(BaseModel):
    param: str
    details: str


class ErrorBody(BaseModel):
    code: str = Field(description="The kind of failure.")
    detail: str = Field(description="What failed, why, and what to do about it.")
    errors: list[FieldError] = Field(description="The invalid fields; empty if the error concerns none.")


def image_body(image: Image, entry: Entry) -> ImageBody:
    return ImageBody(
        id=image.id,
        rootfs=str(image.rootfs),
        names=sorted(entry.names),
        digests=list(image.digests),
        config=image.config.document(),
        bytes=sum(entry.parts.values()),
        uses=sorted(entry.uses),
    )


def brief_body(entry: Entry) -> BriefImageBody:
    return BriefImageBody(names=sorted(entry.names), bytes=sum(entry.parts.values()), uses=sorted(entry.uses))
