"""Moto (S3, and in the place of Google's store) and Azurite (Azure) on loopback."""

import base64
import hashlib
import hmac
import http.client
import json
from email.utils import formatdate
from pathlib import Path

from pyarrow import fs

from outrigger_testenv.pinned import Pinned, with_npm
from outrigger_testenv.processes import Process, free_ports, listens
from outrigger_testenv.stores.relay import Relay
from outrigger_testenv.stores.translator import Translator

_REQUIREMENTS = Path(__file__).parent / "requirements"
_MOTO = Path(__file__).parent / "moto_server.py"
_LOOPBACK = "127.0.0.1"
_START = 120.0
BUCKET = "rows"
# The account of every Azurite, and its key, which its documentation names.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def _pins(name: str, **arguments) -> Pinned:
    return Pinned("stores", _REQUIREMENTS / f"{name}.txt", "object-stores", **arguments)


class Server:
    """A store in `directory`, which is new, with the bucket BUCKET, behind a way to it that can be
    cut (`relay`). It is a context manager. `environment` has what Outrigger needs, and `root` is
    the address of the bucket.
    """

    PINNED: Pinned
    SCHEME: str

    def __init__(self, directory: Path):
        self.directory = directory
        (self.port,) = free_ports(1)
        self.relay = Relay(self.port)
        directory.mkdir(parents=True)
        self.process = Process(type(self).__name__, self.command(), directory / "server.log")

    def command(self) -> list[str | Path]:
        """The command of the server."""
        raise NotImplementedError

    def files(self) -> fs.FileSystem:
        """Another client of the store, which does not take the way that can be cut."""
        raise NotImplementedError

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a client."""
        raise NotImplementedError

    @property
    def root(self) -> str:
        """The address of the bucket."""
        return f"{self.SCHEME}://{BUCKET}"

    @property
    def url(self) -> str:
        """The address of the way to the server."""
        return f"http://{_LOOPBACK}:{self.relay.port}"

    def put_new(self, key: str, content: bytes) -> int:
        """The status of a write on the condition that there is no object with this key."""
        raise NotImplementedError

    def __enter__(self) -> "Server":
        self.process.start()
        try:
            self.process.wait_until(lambda: listens(self.port), _START)
            self.relay.mend()
            self.files().create_dir(BUCKET)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.relay.cut()
        self.process.stop()


class Moto(Server):
    """S3, in the memory of Moto's server."""

    PINNED = _pins("moto")
    SCHEME = "s3"

    def command(self) -> list[str | Path]:
        """Moto's server."""
        return [self.PINNED.python(), _MOTO, _LOOPBACK, str(self.port)]

    def files(self) -> fs.FileSystem:
        """The client of Arrow."""
        return fs.S3FileSystem(
            access_key="key",
            secret_key="secret",
            region="us-east-1",
            endpoint_override=f"{_LOOPBACK}:{self.port}",
            scheme="http",
            allow_bucket_creation=True,
            # Moto does not understand how Arrow completes an upload in parts.
            allow_delayed_open=True,
        )

    def put_new(self, key: str, content: bytes) -> int:
        """A PUT with If-None-Match. Moto checks no signature."""
        headers = {"If-None-Match": "*", "Authorization": "AWS key:signature"}
        return _put(self.port, f"/{BUCKET}/{key}", content, headers)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that AWS's programs have."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def refuse(self, refuses: bool) -> None:
        """From now on refuses all credentials, or none."""
        count = b"0" if refuses else b"1000000000"
        connection = http.client.HTTPConnection(_LOOPBACK, self.port, timeout=60)
        try:
            connection.request("POST", "/moto-api/reset-auth", count)
            assert connection.getresponse().status == 200
        finally:
            connection.close()


class Google(Moto):
    """The XML interface of Google Cloud Storage, by Moto's S3 behind a translator."""

    SCHEME = "gs"

    def __init__(self, directory: Path, translates: bool = True):
        super().__init__(directory)
        self.translator = Translator(self.port, translates)

    def __enter__(self) -> "Server":
        self.translator.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.translator.__exit__()

    def put_new(self, key: str, content: bytes) -> int:
        """A PUT on the condition of Google's interface."""
        headers = {"x-goog-if-generation-match": "0"}
        return _put(self.translator.port, f"/{BUCKET}/{key}", content, headers)

    @property
    def environment(self) -> dict[str, str]:
        """The variables for a store without credentials."""
        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        account = {**nobody, "disable_oauth": True, "gcs_base_url": self.translator.url}
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}


class Azurite(Server):
    """Azure Blob Storage, in files of Azurite."""

    PINNED = _pins("azurite", install=with_npm)
    SCHEME = "az"

    def command(self) -> list[str | Path]:
        """Azurite's server of blobs."""
        program = self.PINNED.directory() / "node_modules" / ".bin" / "azurite-blob"
        return [
            *(program, "--location", self.directory / "files", "--silent", "--skipApiVersionCheck"),
            *("--blobHost", _LOOPBACK, "--blobPort", str(self.port), "--disableTelemetry"),
        ]

    def files(self) -> fs.FileSystem:
        """The client of Arrow."""
        return fs.AzureFileSystem(
            _ACCOUNT,
            account_key=_ACCOUNT_KEY,
            blob_storage_authority=f"{_LOOPBACK}:{self.port}",
            blob_storage_scheme="http",
            dfs_storage_authority=f"{_LOOPBACK}:{self.port}",
            dfs_storage_scheme="http",
        )

    def put_new(self, key: str, content: bytes) -> int:
        """A PUT with If-None-Match, signed as the service wants it ("Shared Key")."""
        path = f"/{_ACCOUNT}/{BUCKET}/{key}"
        signed = {
            "x-ms-blob-type": "BlockBlob",
            "x-ms-date": formatdate(usegmt=True),
            "x-ms-version": "2021-08-06",
        }
        names = "".join(f"{name}:{value}\n" for name, value in sorted(signed.items()))
        # The values of eleven headers, most of which are absent.
        values = ["", "", str(len(content)), "", "", "", "", "", "*", "", ""]
        text = "\n".join(["PUT", *values, f"{names}/{_ACCOUNT}{path}"])
        key_bytes = base64.b64decode(_ACCOUNT_KEY)
        digest = hmac.digest(key_bytes, text.encode(), hashlib.sha256)
        authorization = f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"
        headers = {**signed, "If-None-Match": "*", "Authorization": authorization}
        return _put(self.port, path, content, headers)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the emulator."""
        return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": self.url}


ALL = (Moto, Google, Azurite)


def _put(port: int, path: str, content: bytes, headers: dict[str, str]) -> int:
    """The status of a PUT on loopback."""
    connection = http.client.HTTPConnection(_LOOPBACK, port, timeout=60)
    try:
        connection.request("PUT", path, content, headers)
        return connection.getresponse().status
    finally:
        connection.close()
