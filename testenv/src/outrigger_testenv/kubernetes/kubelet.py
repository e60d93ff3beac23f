"""Runs the pods of a namespace as processes of this machine: a scheduler and a kubelet in one."""

import base64
import itertools
import re
import threading
import traceback
import urllib.error
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path

from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart.root import brought
from outrigger_testenv.chart.user import isolated
from outrigger_testenv.kubernetes.client import Client, Object, Refused
from outrigger_testenv.processes import Process

NODE = "this-machine"
# Seconds after which a watch is begun again.
_WATCH = 30
# Seconds until a process must have ended, and until something that is waited for must be so.
_LONGEST, _PATIENCE = 600.0, 120.0
_INDEX = "batch.kubernetes.io/job-completion-index"


class Kubelet:
    """Binds the pods of one namespace to a node, runs the only container of each as a process in a
    root of its own, and reports its state and exit code. A pod that is deleted gets SIGTERM, and is
    gone when its process has ended.

    `directory` is new, and other users can enter it. `volumes` are the directories of claims, by
    name. The image is the binary under test. It is a context manager.
    """

    def __init__(
        self, client: Client, namespace: str, directory: Path, volumes: Mapping[str, Path]
    ):
        self._client, self._directory, self._volumes = client, directory, volumes
        self._namespace = f"/api/v1/namespaces/{namespace}"
        self._pods = f"{self._namespace}/pods"
        self._roots = itertools.count()
        self._stopped = False
        self._changed = threading.Condition()
        # The pods that were seen, with their processes once these have started, by uid.
        self._seen: dict[str, Object] = {}
        self._processes: dict[str, Process] = {}
        self._stopping: set[str] = set()
        self._ended: set[str] = set()
        self._fault: BaseException | None = None

    def __enter__(self) -> "Kubelet":
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped = True
        for process in list(self._processes.values()):
            process.kill()
            if kind is not None:
                print(process.tail())
        if kind is not None and self._fault is not None:
            traceback.print_exception(self._fault)

    def pods(self) -> list[Object]:
        """All pods that there were, in the order of their creation."""
        with self._changed:
            return sorted(self._seen.values(), key=lambda pod: pod["metadata"]["creationTimestamp"])

    def running(self, index: int, but: str = "") -> Object:
        """Waits for a running pod of a Job's index, other than that with the uid `but`."""

        def found() -> Object | None:
            for pod in self.pods():
                uid = pod["metadata"]["uid"]
                process = self._processes.get(uid)
                if index_of(pod) == index and uid != but and process and process.running:
                    return pod
            return None

        return self.wait(found)

    def kill(self, pod: Object) -> None:
        """Kills the process of a pod, as the kernel does when memory is short."""
        self._processes[pod["metadata"]["uid"]].kill()

    def terminate(self, pod: Object) -> None:
        """Ends the process of a pod by SIGTERM. The pod is not removed, so the end is a failure."""
        self._processes[pod["metadata"]["uid"]].stop()

    def evict(self, pod: Object) -> None:
        """Removes a pod as a drain of its node does."""
        path = f"{self._pods}/{pod['metadata']['name']}/eviction"
        names = {each: pod["metadata"][each] for each in ("name", "namespace")}
        content = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": names}
        self._client.create(path, content)

    def exit_code(self, pod: Object) -> int:
        """Waits for the exit code that is reported of a pod."""

        def found() -> Object | None:
            return next(iter(_terminated(self._seen[pod["metadata"]["uid"]])), None)

        return self.wait(found)["exitCode"]

    def wait(self, found: Callable[[], Object | None]) -> Object:
        """Waits until `found` returns something; it is asked after each change of a pod."""
        result = None

        def is_over() -> bool:
            nonlocal result
            result = found()
            return result is not None or self._fault is not None

        with self._changed:
            in_time = self._changed.wait_for(is_over, _PATIENCE)
        if self._fault is not None:
            raise RuntimeError("the kubelet has failed") from self._fault
        if not in_time:
            raise TimeoutError(f"not so after {_PATIENCE} s: {self._describe()}")
        return result

    def _describe(self) -> str:
        states = (f"{pod['metadata']['name']} {pod.get('status')}" for pod in self.pods())
        logs = (process.tail() for process in self._processes.values())
        return "".join(f"\n{each}" for each in (*states, *logs))

    def _watch(self) -> None:
        while not self._stopped:
            # The server ends each watch after a time, and closes it when it ends itself.
            with suppress(urllib.error.URLError, HTTPException, ConnectionError, TimeoutError):
                for kind, pod in self._client.watch(self._pods, _WATCH):
                    self._guarded(lambda kind=kind, pod=pod: self._event(kind, pod))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Does work of a thread; its failure is raised by `wait`."""
        try:
            work()
        except BaseException as fault:
            if not self._stopped:
                self._fault = fault
        with self._changed:
            self._changed.notify_all()

    def _event(self, kind: str, pod: Object) -> None:
        if self._stopped or kind not in ("ADDED", "MODIFIED", "DELETED"):
            return
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        with self._changed:
            self._seen[uid] = pod
        process = self._processes.get(uid)
        if kind == "DELETED":
            return
        if "nodeName" not in pod["spec"]:
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
            self._client.create(f"{self._pods}/{name}/binding", {**binding, "target": target})
        elif "deletionTimestamp" in pod["metadata"]:
            if process is None or uid in self._ended:
                self._client.delete(f"{self._pods}/{name}", uid)
            elif uid not in self._stopping:
                # A second signal would end it at once.
                self._stopping.add(uid)
                grace = float(pod["metadata"]["deletionGracePeriodSeconds"])
                threading.Thread(target=process.stop, args=(grace,), daemon=True).start()
        elif process is None:
            self._start(pod)

    def _start(self, pod: Object) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        process = Process(name, self._command(pod), self._directory / f"{name}.log")
        process.start()
        self._processes[uid] = process
        self._report(pod, "Running", {"running": {"startedAt": _now()}})
        follow = threading.Thread(
            target=self._guarded, args=(lambda: self._follow(pod, process),), daemon=True
        )
        follow.start()

    def _follow(self, pod: Object, process: Process) -> None:
        """Reports the end of a process."""
        process.wait_until_ended(_LONGEST)
        code = process.exit_code
        # As a container's runtime reports signals.
        code = 128 - code if code < 0 else code
        state = {"terminated": {"exitCode": code, "finishedAt": _now()}}
        self._report(pod, "Failed" if code else "Succeeded", state)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        # A pod that is being deleted stays until its end is reported.
        self._ended.add(uid)
        with suppress(Refused):
            if "deletionTimestamp" in self._client.get(f"{self._pods}/{name}")["metadata"]:
                self._client.delete(f"{self._pods}/{name}", uid)

    def _report(self, pod: Object, phase: str, state: Object) -> None:
        (container,) = pod["spec"]["containers"]
        is_running = phase == "Running"
        status = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "the binary under test",
            "ready": is_running,
            "restartCount": 0,
            "state": state,
        }
        ready = {"type": "Ready", "status": str(is_running)}
        reported = {"phase": phase, "conditions": [ready], "containerStatuses": [status]}
        self._client.patch_status(f"{self._pods}/{pod['metadata']['name']}", reported)

    def _command(self, pod: Object) -> list[str]:
        (container,) = pod["spec"]["containers"]
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        mounts = {
            each["mountPath"]: self._volume(pod, volumes[each["name"]])
            for each in container["volumeMounts"]
            # Those of service accounts, which pods of the chart do not have.
            if each["name"] in volumes
        }
        variables = {**self._secrets(container), **_environment(pod, container)}
        program, *arguments = [*container["command"], *container["args"]]
        if program != "outrigger":
            raise ValueError(f"{program} is not in the image")
        program = str(outrigger())
        enter, places = brought(self._root(), mounts, [program])
        arguments = [_expanded(each, variables) for each in arguments]
        contexts = (pod["spec"]["securityContext"], container["securityContext"])
        return [*enter, *isolated(contexts, variables, [places[program], *arguments])]

    def _root(self) -> Path:
        return self._directory / "roots" / str(next(self._roots))

    def _volume(self, pod: Object, volume: Object) -> Path:
        """The directory with a volume's content."""
        if "persistentVolumeClaim" in volume:
            return self._volumes[volume["persistentVolumeClaim"]["claimName"]]
        directory = self._directory / "volumes" / pod["metadata"]["name"] / volume["name"]
        directory.mkdir(parents=True)
        if "emptyDir" in volume:
            directory.chmod(0o777)
        elif "configMap" in volume:
            name = volume["configMap"]["name"]
            content = self._client.get(f"{self._namespace}/configmaps/{name}")
            for key, text in content["data"].items():
                (directory / key).write_text(text)
        else:
            raise ValueError(f"volumes such as {volume} are not known here")
        return directory

    def _secrets(self, container: Object) -> dict[str, str]:
        """The variables of the Secrets that a container names."""
        variables = {}
        for each in container.get("envFrom", []):
            secret = self._client.get(f"{self._namespace}/secrets/{each['secretRef']['name']}")
            decoded = {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}
            variables |= decoded
        return variables


def index_of(pod: Object) -> int:
    """The index of a pod in its Job."""
    return int(pod["metadata"]["annotations"][_INDEX])


def _terminated(pod: Object) -> list[Object]:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return [each["state"]["terminated"] for each in statuses if "terminated" in each["state"]]


def _environment(pod: Object, container: Object) -> dict[str, str]:
    """The variables that a container lists."""
    return {
        each["name"]: each.get("value", "") if "valueFrom" not in each else _field(pod, each)
        for each in container.get("env", [])
    }


def _field(pod: Object, variable: Object) -> str:
    """The label or annotation of the pod that a variable has the value of."""
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    kind, key = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path).groups()
    return pod["metadata"][kind][key]


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """A text with the values of its variables, which are written as $(NAME)."""
    return re.sub(r"\$\((\w+)\)", lambda hit: variables.get(hit[1], hit[0]), text)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
