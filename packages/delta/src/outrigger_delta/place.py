"""Directories and addresses of stores of objects."""

import os
from dataclasses import dataclass
from pathlib import Path

from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from outrigger_delta.errors import SettingsError

# The stores that `outrigger batch` has.
_SCHEMES = ("s3", "gs", "az", "abfss")


@dataclass(frozen=True)
class Place:
    """An absolute directory, or an address such as `s3://bucket/prefix` without a slash at its
    end. Credentials of stores come from the environment.
    """

    location: str

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The place that a user names. Raises SettingsError."""
        if "%" in text:
            # The client of Delta Lake decodes some of its paths once more.
            raise SettingsError(f"{text}: a place cannot have a per cent sign in its name")
        scheme, separator, rest = text.partition("://")
        if not separator:
            if not text:
                raise SettingsError("an empty name is no directory")
            path = Path(text).resolve()
            if path.exists() and not path.is_dir():
                raise SettingsError(f"{path} is not a directory")
            return cls(str(path))
        if scheme not in _SCHEMES:
            raise SettingsError(f"{text}: an address begins with one of {', '.join(_SCHEMES)}")
        if "@" in rest and scheme != "abfss":
            raise SettingsError("an address has no credentials: they come from the environment")
        if not rest.strip("/"):
            raise SettingsError(f"{text}: an address has a bucket")
        return cls(text.rstrip("/"))

    @property
    def options(self) -> dict[str, str]:
        """Settings of the client of the store, beyond those of the environment."""
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        is_plain = self.location.startswith("s3://") and endpoint.startswith("http://")
        return {"AWS_ALLOW_HTTP": "true"} if is_plain else {}

    def below(self, name: str) -> "Place":
        """The place `name` in this one."""
        return Place(f"{self.location}/{name}")

    @property
    def parent(self) -> "Place":
        """The place that this one is in; the same for a root or a bucket."""
        parent, _, name = self.location.rpartition("/")
        is_root = not parent or parent.endswith("/") or not name
        return self if is_root else Place(parent)

    def holds(self, other: "Place") -> bool:
        """True if `other` is this place, or below it."""
        return f"{other.location}/".startswith(f"{self.location.rstrip('/')}/")

    def files(self) -> fs.FileSystem:
        """The files of this place, which is the root. Raises SettingsError if it is not there."""
        try:
            return fs.PyFileSystem(DeltaStorageHandler(self.location, self.options))
        except TableNotFoundError:
            raise SettingsError(f"{self}: there is no such directory") from None

    def __str__(self) -> str:
        return self.location
