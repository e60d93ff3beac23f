"""The restricted Pod Security Standard of Kubernetes 1.34 and later, control by control.

See https://kubernetes.io/docs/concepts/security/pod-security-standards: all controls of baseline
and more. Violations of an older cluster's standard are reported too.
"""

from collections.abc import Callable, Iterator, Mapping

from outrigger_testenv.chart.render import Object, containers

# The allowed volume types; `image` since Kubernetes 1.33.
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
PROFILES = ("RuntimeDefault", "Localhost")
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}


def violations(pod: Object, annotations: Mapping[str, str] | None = None) -> list[str]:
    """The violations for which a namespace with the standard would refuse a pod, by its
    specification and the annotations of its metadata.
    """
    context = pod.get("securityContext", {})
    found = [*_pod(pod), *_annotations(annotations or {})]
    found += [f"pod: {each}" for control in _CONTEXT for each in control(context)]
    for container in containers(pod):
        own = container.get("securityContext", {})
        of_container = [
            *(each for control in _CONTEXT for each in control(own)),
            *_container(container),
            *_rights(own),
            *_required({**context, **own}),
        ]
        found += [f"{container['name']}: {each}" for each in of_container]
    return found


def _pod(pod: Object) -> Iterator[str]:
    """Checks host namespaces, volume types and sysctls."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield f"{key} is set"
    for volume in pod.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= VOLUMES:
            yield f"volume {volume['name']} is {', '.join(kinds)}"
    for sysctl in pod.get("securityContext", {}).get("sysctls", []):
        if sysctl["name"] not in SYSCTLS:
            yield f"sysctl {sysctl['name']}"


def _annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    """Checks AppArmor annotations, which Kubernetes used before 1.30."""
    for name, profile in annotations.items():
        taken = profile in ("", "runtime/default") or profile.startswith("localhost/")
        if name.startswith(APPARMOR_ANNOTATION) and not taken:
            yield f"{name} is {profile}"


def _user(context: Object) -> Iterator[str]:
    if context.get("runAsUser") == 0:
        yield "runs as root"


def _seccomp(context: Object) -> Iterator[str]:
    if context.get("seccompProfile", {}).get("type", PROFILES[0]) not in PROFILES:
        yield "seccompProfile"


def _apparmor(context: Object) -> Iterator[str]:
    if context.get("appArmorProfile", {}).get("type", PROFILES[0]) not in PROFILES:
        yield "appArmorProfile"


def _selinux(context: Object) -> Iterator[str]:
    options = context.get("seLinuxOptions", {})
    if options.get("type", "") not in SELINUX_TYPES:
        yield f"seLinuxOptions.type is {options['type']}"
    for key in ("user", "role"):
        if options.get(key):
            yield f"seLinuxOptions.{key} is set"


def _windows(context: Object) -> Iterator[str]:
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "hostProcess"


# The controls that apply to the security contexts of pods and containers alike.
_CONTEXT: tuple[Callable[[Object], Iterator[str]], ...] = (
    _user,
    _seccomp,
    _apparmor,
    _selinux,
    _windows,
)


def _container(container: Object) -> Iterator[str]:
    """Checks host ports, and other hosts in probes and hooks."""
    for port in container.get("ports", []):
        if port.get("hostPort"):
            yield f"hostPort {port['hostPort']}"
    hooks = container.get("lifecycle", {})
    for name in ("startupProbe", "readinessProbe", "livenessProbe", "postStart", "preStop"):
        handler = {**container, **hooks}.get(name, {})
        for kind in ("httpGet", "tcpSocket"):
            if handler.get(kind, {}).get("host"):
                yield f"{name}.{kind}.host is set"


def _rights(context: Object) -> Iterator[str]:
    """Checks privileges, capabilities and /proc."""
    if context.get("privileged"):
        yield "is privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield "keeps capabilities"
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "adds capabilities"
    if context.get("procMount", "Default") != "Default":
        yield f"procMount is {context['procMount']}"


def _required(both: Object) -> Iterator[str]:
    """Checks the settings that the pod or the container must make; the container's value takes
    precedence.
    """
    if both.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if "seccompProfile" not in both:
        yield "no seccompProfile"
