"""A client of the Kubernetes API, as far as the tests need one."""

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

# Seconds between two parts of an answer.
_TIMEOUT = 60.0
_MANAGER = "outrigger-tests"


class Refused(RuntimeError):
    """The server has refused a request; `status` is that of HTTP."""

    def __init__(self, status: int, message: str):
        super().__init__(f"{status}: {message}")
        self.status = status


class Client:
    """Calls the server of a kubeconfig. `warnings` are those of all answers."""

    def __init__(self, kubeconfig: Path):
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authorities = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._server = cluster["server"]
        self._headers = {"authorization": f"Bearer {user['token']}"}
        self._tls = ssl.create_default_context(cadata=authorities)
        self.warnings: list[str] = []

    def get(self, path: str) -> Object:
        """An object, or a list of them."""
        return self._call("GET", path)

    def create(self, path: str, content: Object) -> Object:
        """Creates an object in a collection, or calls a subresource."""
        return self._call("POST", path, content)

    def apply(self, content: Object, dry_run: bool = False) -> Object:
        """Applies an object, whose fields must all be known."""
        query = {"fieldManager": _MANAGER, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        path = f"{path_of(content)}?{urllib.parse.urlencode(query)}"
        return self._call("PATCH", path, content, "application/apply-patch+yaml")

    def update(self, path: str, changes: Object) -> Object:
        """Changes fields of an object; lists are replaced."""
        return self._call("PATCH", path, changes, "application/merge-patch+json")

    def patch_status(self, path: str, status: Object) -> Object:
        """Changes fields of an object's status; lists of conditions are merged by their types."""
        kind = "application/strategic-merge-patch+json"
        return self._call("PATCH", f"{path}/status", {"status": status}, kind)

    def delete(self, path: str, uid: str) -> None:
        """Deletes the object with this uid at once, as a kubelet does when a pod's processes have
        ended. It is no error if there is none.
        """
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        try:
            self._call("DELETE", path, options)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    def watch(self, path: str, seconds: int) -> Iterator[tuple[str, Object]]:
        """The objects of a collection, and then their changes for this time: ADDED, MODIFIED or
        DELETED, each with the object.
        """
        watched = f"{path}?watch=1&timeoutSeconds={seconds}"
        with self._open("GET", watched, timeout=seconds + _TIMEOUT) as answer:
            for line in answer:
                event = json.loads(line)
                yield event["type"], event["object"]

    def _call(
        self, method: str, path: str, content: Object | None = None, kind: str = "application/json"
    ) -> Object:
        with self._open(method, path, content, kind) as answer:
            self.warnings += answer.headers.get_all("warning", [])
            return json.load(answer)

    def _open(
        self,
        method: str,
        path: str,
        content: Object | None = None,
        kind: str = "application/json",
        *,
        timeout: float = _TIMEOUT,
    ) -> Any:
        body = None if content is None else json.dumps(content).encode()
        headers = {**self._headers, "content-type": kind}
        request = urllib.request.Request(f"{self._server}{path}", body, headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=timeout, context=self._tls)
        except urllib.error.HTTPError as error:
            raise Refused(error.code, _message(error)) from error


def path_of(content: Object) -> str:
    """The path of an object with a namespace, by its kind and name."""
    metadata, version = content["metadata"], content["apiVersion"]
    group = "api" if "/" not in version else "apis"
    kind = content["kind"].lower()
    kinds = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"/{group}/{version}/namespaces/{metadata['namespace']}/{kinds}/{metadata['name']}"


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return json.loads(text)["message"]
    except (ValueError, KeyError):
        return text
