"""Request and response models of the routes for image warm-ups."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field
from sandlot_contract.warmups import MAX_ERRORS, MAX_IMAGES

from sandlot_gateway.control.field_types import Strict, Text


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class WarmImage(Strict):
    """An image of a data set."""

    image: Text = Field(min_length=1, max_length=512)
    weight: Annotated[int, Field(ge=1, le=1_000_000_000), BeforeValidator(_whole)] = Field(
        1, description="How often it occurs: on Kubernetes a frequent image goes to more nodes."
    )


class WarmupRequest(Strict):
    """Images to prepare; one that is named twice has the sum of its weights."""

    images: list[WarmImage] = Field(min_length=1, max_length=MAX_IMAGES)


class ImageError(BaseModel):
    image: str
    node: str | None = Field(description="null: one machine, or the same on all nodes.")
    message: str


class WarmupResponse(BaseModel):
    id: str
    tenant: str
    state: Literal["PENDING", "RUNNING", "DONE"] = Field(
        description="DONE: each image is ready or has failed."
    )
    created_at: str
    finished_at: str | None
    images: int = Field(description="Different images.")
    images_ready: int = Field(description="Images that are on all nodes where they should be.")
    images_failed: int
    copies: int = Field(description="Images times the nodes that each should be on.")
    copies_ready: int
    bytes: int = Field(description="Bytes of the copies that are ready.")
    seconds_left: float | None = Field(
        description="Copies left divided by the rate of the last 20; null until three are done."
    )
    errors: list[ImageError] = Field(description=f"Why images failed; at most {MAX_ERRORS}.")
    message: str | None = Field(description="What holds the warm-up up, if anything does.")


class WarmupList(BaseModel):
    warmups: list[WarmupResponse]
