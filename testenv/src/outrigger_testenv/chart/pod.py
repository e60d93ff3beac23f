"""Runs a rendered pod as processes of this machine, with its arguments, environment and user."""

import itertools
import os
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from outrigger_testenv.binary import outrigger
from outrigger_testenv.chart.render import Object, Rendered, containers
from outrigger_testenv.chart.root import brought, may_mount
from outrigger_testenv.chart.user import as_rendered, isolated
from outrigger_testenv.processes import Process, free_ports
from outrigger_testenv.stack import LIBRARY_ENV, engine_program, library

ADMIN = 9901
OURS = ("engine", "outrigger")
_PROGRAMS = {"outrigger": lambda: [outrigger()], "tensorflow_model_server": engine_program}


class LocalPod:
    """The containers of one pod, started and stopped in a kubelet's order.

    Ports differ from a cluster's: they are free ones of this machine. As root, a container has a
    root filesystem of its own with the volumes at their paths, the user of its security context (an
    arbitrary one if it names none), no capabilities, and a namespace of processes of its own unless
    the pod shares one, which is this machine's here. Otherwise it runs as our user, with
    directories below `directory` in place of the volumes' paths. Containers added by values are
    left out.

    `volumes` gives the content of volumes that the chart does not create: Secrets, images.
    """

    def __init__(self, rendered: Rendered, volumes: Mapping[str, Path] | None = None):
        # Not in pytest's directories, which other users cannot enter.
        self.directory = Path(tempfile.mkdtemp(prefix="outrigger-pod-"))
        self.directory.chmod(0o755)
        self.rendered = rendered
        pod = rendered.pod
        ports = [port["containerPort"] for port in rendered.container("outrigger")["ports"]]
        self.ports = dict(zip((*ports, ADMIN), free_ports(len(ports) + 1), strict=True))
        given = volumes or {}
        tests = [each["spec"].get("volumes", []) for each in rendered.of_kind("Pod")]
        wanted = [*pod["volumes"], *rendered.claims, *itertools.chain.from_iterable(tests)]
        self._volumes = {
            each["name"]: given.get(each["name"]) or self._make(each) for each in wanted
        }
        for each in wanted:
            self._fill(each)
        self._roots = itertools.count()
        self.processes = {
            each["name"]: Process(each["name"], self._command(each), self._log(each["name"]))
            for each in self._containers()
        }

    def start(self) -> "LocalPod":
        """Starts native sidecars one by one, waiting for each startup probe; then the other
        containers, and waits until they are ready.
        """
        for sidecar in self._containers("initContainers"):
            self.processes[sidecar["name"]].start()
            self._wait(sidecar, "startupProbe")
        for container in self._containers("containers"):
            self.processes[container["name"]].start()
        for container in self._containers("containers"):
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                self._wait(container, probe)
        return self

    def stop(self) -> None:
        """Stops all containers at once, by the preStop hook and then SIGTERM; native sidecars
        follow when the others have ended.
        """
        self._stop(self._containers("containers"))
        self._stop(self._containers("initContainers"))

    def run(self, container: Object, *further: str) -> subprocess.CompletedProcess[str]:
        """Runs this container's command to its end."""
        return subprocess.run(
            [*self._command(container), *further], capture_output=True, text=True, check=False
        )

    def test(self, hook: Object) -> subprocess.CompletedProcess[str]:
        """Runs the pod of a `helm test` hook against this pod, to its end."""
        (container,) = hook["spec"]["containers"]
        service = f"{self.rendered.workload['metadata']['name']}:"
        arguments = [each.replace(service, "127.0.0.1:") for each in container["args"]]
        return self.run({**container, "args": arguments})

    def first(self, name: str) -> int:
        """The process id, on this machine, of a running container's first process."""
        pid = self.processes[name].pid
        if not self._alone():
            return pid
        (first,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(first)

    def inside(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in a running container with its user and rights, as `kubectl exec` does.
        Only root can.
        """
        namespaces = ["--mount", "--root", *(["--pid"] if self._alone() else [])]
        enter = ["nsenter", f"--target={self.first(name)}", *namespaces, "--"]
        contexts = self._contexts(self.rendered.container(name))
        return subprocess.run(
            [*enter, *as_rendered(*contexts), *command], capture_output=True, text=True, check=False
        )

    def close(self) -> None:
        """Kills all processes and removes the directory."""
        for process in self.processes.values():
            process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def get(self, path: str) -> tuple[int, str]:
        """A GET on the probes' port, as a kubelet sends it; status 0 if nothing answers."""
        action = self.rendered.container("outrigger")["readinessProbe"]["httpGet"]
        return self._get({**action, "path": path})

    def __enter__(self) -> "LocalPod":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for process in self.processes.values():
                print(process.tail())
        self.close()

    def _make(self, volume: Object) -> Path:
        directory = self.directory / "volumes" / volume["name"]
        directory.mkdir(parents=True, exist_ok=True)
        if {"emptyDir", "ephemeral", "persistentVolumeClaim"} & set(volume):
            # Writable for everybody, as a kubelet makes such volumes.
            directory.chmod(0o777)
        return directory

    def _fill(self, volume: Object) -> None:
        """Writes the files of a ConfigMap volume."""
        source = volume.get("configMap", {}).get("name")
        for each in self.rendered.of_kind("ConfigMap"):
            if each["metadata"]["name"] == source:
                for name, text in each["data"].items():
                    local = self._local(text, self.rendered.container("outrigger"))
                    (self._volumes[volume["name"]] / name).write_text(local)

    def _mounts(self, container: Object) -> dict[str, Path]:
        """The local directories of the container's volumes, by mount path."""
        return {
            each["mountPath"]: self._volumes[each["name"]]
            for each in container.get("volumeMounts", [])
            if each["name"] in self._volumes
        }

    def _local(self, text: str, container: Object) -> str:
        mounts = {} if may_mount() else self._mounts(container)
        # The longest path first; without mounts, a pattern that matches nothing.
        paths = "|".join(sorted(map(re.escape, mounts), key=len, reverse=True)) or "(?!)"
        ports = "|".join(map(str, self.ports))
        pattern = re.compile(rf"(?<![\w.-])({paths})(?=[/\s\"']|$)|(?<![\w.])({ports})(?!\w)")
        return pattern.sub(
            lambda hit: str(mounts[hit[1]]) if hit[1] else str(self.ports[int(hit[2])]), text
        )

    def _command(self, container: Object) -> list[str]:
        *before, program = container["command"]
        ours = [str(each) for each in _PROGRAMS[program]()]
        command = [*before, *ours, *container["args"]]
        return self._within(container, command, ours[:1], _runtime(program))

    def _within(
        self,
        container: Object,
        command: list[str],
        files: Sequence[str] = (),
        further: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Wraps a command in the container's root, user and environment. The command needs the
        `files` of this machine, and those that the `further` variables hold.
        """
        enter, places = self._enter(container, [*files, *(further or {}).values()])

        def local(text: str) -> str:
            return self._local(places.get(text, text), container)

        variables = {
            **{each["name"]: each.get("value", "") for each in container.get("env", [])},
            **(further or {}),
        }
        variables = {name: local(value) for name, value in variables.items()}
        local_command = [local(each) for each in command]
        return [*enter, *isolated(self._contexts(container), variables, local_command)]

    def _contexts(self, container: Object) -> tuple[Object, Object]:
        """The security contexts of the pod and of the container."""
        return self.rendered.pod["securityContext"], container["securityContext"]

    def _alone(self) -> bool:
        """Whether each container has a namespace of processes of its own."""
        return may_mount() and not self.rendered.pod.get("shareProcessNamespace", False)

    def _enter(self, container: Object, needed: list[str]) -> tuple[list[str], dict[str, str]]:
        """The command prefix that enters the container's root, and the paths of the `needed` files
        within it.
        """
        directory = self.directory / "roots" / str(next(self._roots))
        return brought(directory, self._mounts(container), needed, self._alone())

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _containers(self, *lists: str) -> list[Object]:
        """The chart's own containers in these lists of the pod, or in all of them."""
        pod = self.rendered.pod
        named = itertools.chain.from_iterable(pod.get(each, []) for each in lists)
        return [each for each in (named if lists else containers(pod)) if each["name"] in OURS]

    def _wait(self, container: Object, name: str) -> None:
        probe = container.get(name)
        if probe is None:
            return
        patience = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        self.processes[container["name"]].wait_until(
            lambda: self._passes(probe, container), max(patience, 60.0)
        )

    def _passes(self, probe: Object, container: Object) -> bool:
        if "exec" in probe:
            return self._exec(probe["exec"], container).wait() == 0
        return self._get(probe["httpGet"])[0] == 200

    def _get(self, action: Object) -> tuple[int, str]:
        """A probe's GET on the control plane. Certificates are not checked, as by a kubelet."""
        ports = self.rendered.container("outrigger")["ports"]
        (port,) = (each["containerPort"] for each in ports if each["name"] == action["port"])
        scheme = action.get("scheme", "HTTP").lower()
        url = f"{scheme}://127.0.0.1:{self.ports[port]}{action['path']}"
        unchecked = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(url, timeout=5, context=unchecked) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def _stop(self, together: list[Object]) -> None:
        with ThreadPoolExecutor(len(together) or 1) as threads:
            list(threads.map(self._end, together))

    def _end(self, container: Object) -> None:
        grace = self.rendered.pod["terminationGracePeriodSeconds"]
        hook = container.get("lifecycle", {}).get("preStop")
        if hook:
            self._exec(hook["exec"], container).wait(grace)
        process = self.processes[container["name"]]
        if process.running:
            # Only the first process is signalled, which may be in another process group.
            os.kill(self.first(container["name"]), signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait_until_ended(grace)
        process.kill()

    def _exec(self, action: Object, container: Object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._within(container, action["command"]))


def _runtime(program: str) -> dict[str, str]:
    """The environment by which the local engine finds TensorFlow; the real one has it built in."""
    if program != "tensorflow_model_server":
        return {}
    given = {name: os.environ[name] for name in (LIBRARY_ENV,) if name in os.environ}
    return given or library()
