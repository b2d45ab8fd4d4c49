"""Prepares images: from a name to the lower directory of a sandbox's overlay."""

from .errors import ImageError
from .reference import Host, OciPath, Reference, Registry, parse
from .store import Image, ImageStore

__all__ = ["Host", "Image", "ImageError", "ImageStore", "OciPath", "Reference", "Registry", "parse"]
