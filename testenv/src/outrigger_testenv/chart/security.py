"""The restricted Pod Security Standard, as its admission controller checks it."""

from collections.abc import Iterator

from outrigger_testenv.chart.render import Object, containers

# `image` since Kubernetes 1.33.
VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SECCOMP = ("RuntimeDefault", "Localhost")


def violations(pod: Object) -> list[str]:
    """What a namespace with the restricted standard would refuse a pod for."""
    found = [f"{key} is set" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    for volume in pod.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= VOLUMES:
            found.append(f"volume {volume['name']} is {', '.join(kinds)}")
    context = pod.get("securityContext", {})
    found += [f"pod: {each}" for each in _common(context)]
    for container in containers(pod):
        name, own = container["name"], container.get("securityContext", {})
        found += [f"{name}: {each}" for each in [*_common(own), *_container(own, context)]]
        found += [f"{name}: hostPort" for port in container.get("ports", []) if "hostPort" in port]
    return found


def _common(context: Object) -> Iterator[str]:
    if context.get("runAsUser") == 0:
        yield "runs as root"
    if context.get("seccompProfile", {}).get("type", SECCOMP[0]) not in SECCOMP:
        yield "seccompProfile"
    if context.get("seLinuxOptions") or context.get("windowsOptions") or context.get("sysctls"):
        yield "options of the kernel"


def _container(own: Object, pod: Object) -> Iterator[str]:
    both = {**pod, **own}
    if both.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if "seccompProfile" not in both:
        yield "no seccompProfile"
    if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
        yield "may gain privileges"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield "keeps capabilities"
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "adds capabilities"
