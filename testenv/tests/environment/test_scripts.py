"""The scripts that prepare and check a machine, with stand-ins for the programs they run."""

import shutil
import subprocess

import pytest

from outrigger_testenv.binary import repository

SERVICES = ("docker-registry.service", "prometheus.service")
# The programs that the tests use, without chromium.
TOOLS = (
    "docker-registry",
    "skopeo",
    "umoci",
    "buildah",
    "bwrap",
    "openssl",
    "prometheus",
    "valgrind",
)

# Keeps a unit as a directory of flags: enabled, active. As in Debian 12, a runtime mask can
# be set without a running systemd, but not be undone.
SYSTEMCTL = """\
echo "systemctl $*" >> "$STATE/log"
for unit; do :; done
case "$1" in
  is-system-running) /bin/cat "$STATE/system"; [ "$(/bin/cat "$STATE/system")" = running ] ;;
  is-enabled)
    if [ -e "$STATE/masks/$unit" ]; then echo masked-runtime; exit 1
    elif [ -e "$STATE/units/$unit/enabled" ]; then echo enabled
    elif [ -d "$STATE/units/$unit" ]; then echo disabled; exit 1
    else echo "no such file" >&2; exit 1; fi ;;
  mask) /bin/touch "$STATE/masks/$unit" ;;
  unmask) [ "$(/bin/cat "$STATE/system")" = running ] && /bin/rm "$STATE/masks/$unit" ;;
  disable)
    /bin/rm -f "$STATE/units/$unit/enabled"
    case " $* " in *" --now "*) /bin/rm -f "$STATE/units/$unit/active" ;; esac ;;
esac
"""

# Installs packages as Debian does: its unit is enabled, and started unless it is masked.
APT_GET = """\
echo "apt-get $*" >> "$STATE/log"
for package; do :; done
case "$1" in install) ;; *) exit 0 ;; esac
[ "$package" != "$BROKEN" ] || exit 100
case "$package" in docker-registry | prometheus) ;; *) exit 0 ;; esac
unit="$STATE/units/$package.service"
[ ! -d "$unit" ] || exit 0
/bin/mkdir "$unit"
/bin/touch "$unit/enabled"
if [ "$(/bin/cat "$STATE/system")" = running ] && [ ! -e "$STATE/masks/$package.service" ]; then
  /bin/touch "$unit/active" "$STATE/was-started"
fi
"""


class Machine:
    """A machine of which the script sees only the programs that are put here."""

    def __init__(self, directory):
        self.state = directory / "state"
        self.programs = directory / "programs"
        for each in (self.state / "units", self.state / "masks", self.programs):
            each.mkdir(parents=True)
        self.says(running=True)
        (self.state / "log").touch()
        for name, body in {"systemctl": SYSTEMCTL, "apt-get": APT_GET, "id": "echo 0"}.items():
            self.program(name, body)

    def says(self, *, running):
        """Sets whether systemd runs."""
        (self.state / "system").write_text("running\n" if running else "offline\n")

    def program(self, name, body="exit 0"):
        """Puts a program on the path."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def system(self, *names):
        """Puts programs of this machine on the path."""
        for each in names:
            (self.programs / each).symlink_to(shutil.which(each))

    def unit(self, name, *flags):
        """Adds a service with these flags."""
        (self.state / "units" / name).mkdir()
        for each in flags:
            (self.state / "units" / name / each).touch()

    def flags(self, name):
        """The flags of a service; None if there is none of this name."""
        unit = self.state / "units" / name
        return {each.name for each in unit.iterdir()} if unit.is_dir() else None

    def run(self, script, **environment):
        """Runs a script; returns what it printed, and what it ran."""
        command = ["/bin/bash", repository() / script]
        given = {"PATH": str(self.programs), "STATE": str(self.state), "BROKEN": "", **environment}
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        return done, (self.state / "log").read_text()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("running", [True, False])
def test_services_that_come_with_a_package_neither_start_nor_stay_enabled(machine, running):
    machine.says(running=running)
    done, log = machine.run("scripts/install-test-tools")
    assert done.returncode == 0, done.stderr
    assert [machine.flags(each) for each in SERVICES] == [set(), set()], log
    assert not (machine.state / "was-started").exists()
    assert not list((machine.state / "masks").iterdir())


def test_services_that_were_there_before_are_left_alone(machine):
    for each in SERVICES:
        machine.unit(each, "enabled", "active")
    done, log = machine.run("scripts/install-test-tools")
    assert done.returncode == 0, done.stderr
    assert [machine.flags(each) for each in SERVICES] == [{"enabled", "active"}] * 2
    assert "mask" not in log
    assert "disable" not in log


def test_an_existing_service_and_a_new_one_are_distinguished(machine):
    machine.unit("prometheus.service", "active")
    machine.run("scripts/install-test-tools")
    assert machine.flags("prometheus.service") == {"active"}
    assert machine.flags("docker-registry.service") == set()


def test_a_service_is_left_alone_when_only_other_programs_are_missing(machine):
    machine.unit("prometheus.service", "enabled", "active")
    for each in TOOLS:
        machine.program(each)
    done, log = machine.run("scripts/install-test-tools")
    assert done.returncode == 0, done.stderr
    assert machine.flags("prometheus.service") == {"enabled", "active"}
    assert "chromium" in log
    assert "systemctl" not in log


def test_a_package_that_cannot_be_installed_is_reported_and_leaves_no_mask(machine):
    done, _ = machine.run("scripts/install-test-tools", BROKEN="prometheus")
    assert done.returncode == 0
    assert "prometheus could not be installed" in done.stderr
    assert machine.flags("prometheus.service") is None
    assert not list((machine.state / "masks").iterdir())


def test_without_root_nothing_is_installed(machine):
    machine.program("id", "echo 1000")
    done, log = machine.run("scripts/install-test-tools")
    assert done.returncode == 0
    assert "needs root and apt" in done.stderr
    assert log == ""


def test_a_machine_that_has_everything_is_not_touched(machine):
    for each in (*TOOLS, "chromium"):
        machine.program(each)
    done, log = machine.run("scripts/install-test-tools")
    assert (done.returncode, done.stderr, log) == (0, "", "")


DATABASE = "https://github.com/RustSec/advisory-db"
RECORDED = 'echo "$(/usr/bin/basename "$0") $*" >> "$STATE/log"'


@pytest.fixture
def checking(machine):
    """A machine with what the check of dependencies runs."""
    machine.system("dirname", "timeout")
    machine.program("git", RECORDED)
    machine.program("cargo-deny", RECORDED)
    return machine


def test_advisories_are_checked_where_their_database_can_be_reached(checking):
    done, log = checking.run("scripts/check-dependencies")
    assert (done.returncode, done.stdout) == (0, "")
    assert log.splitlines() == [
        "cargo-deny --locked check bans licenses sources",
        f"git ls-remote --exit-code {DATABASE} HEAD",
        "cargo-deny --locked check advisories",
    ]


def test_elsewhere_a_line_says_that_advisories_were_not_checked(checking):
    checking.program("git", "exit 128")
    done, log = checking.run("scripts/check-dependencies")
    assert done.returncode == 0
    assert done.stdout == f"advisories not checked: {DATABASE} cannot be reached\n"
    assert "check bans licenses sources" in log
    assert "check advisories" not in log


@pytest.mark.parametrize("refused", ["bans", "advisories"])
def test_a_dependency_that_is_refused_fails_the_check(checking, refused):
    checking.program("cargo-deny", f'case "$*" in *{refused}*) exit 4 ;; esac')
    assert checking.run("scripts/check-dependencies")[0].returncode == 4


def test_the_check_fails_without_cargo_deny(checking):
    (checking.programs / "cargo-deny").unlink()
    assert checking.run("scripts/check-dependencies")[0].returncode == 127


MAKE = """\
for target; do :; done
echo "make $target" >> "$STATE/log"
case "$target" in
  peers) exit {lint} ;;
  compiled-once) exit {compiled} ;;
  test-all)
    if [ {test} -ne 0 ]; then
      echo "test canaries::a_tie ... FAILED"
      echo "FAILED testenv/tests/test_a.py::test_b - no answer"
    fi
    echo "test result: ok. 3 passed; 0 failed; 1 ignored"
    echo "== 5 passed in 1s =="
    echo "took: test-stacks 5 s"
    exit {test} ;;
  demo) echo "{demo}"; exit {demo_status} ;;
  demo-trees) echo "{trees}"; exit {trees_status} ;;
  demo-oip) echo "{oip}"; exit {oip_status} ;;
  demo-batch) echo "{batch}"; exit {batch_status} ;;
esac
"""
# The free KiB of the disk.
DF = 'printf "avail\\n%s\\n" "{free}"'
GREEN = {
    "lint": 0,
    "compiled": 0,
    "test": 0,
    "demo": "demo ok: 8 scores",
    "demo_status": 0,
    "trees": "demo ok: 9 scores",
    "trees_status": 0,
    "oip": "demo ok: 7 scores",
    "oip_status": 0,
    "batch": "demo ok: 6 scores",
    "batch_status": 0,
}


@pytest.fixture
def ci(machine):
    """Runs what CI runs, with a `make` of which some parts behave otherwise."""

    def run(free=40 << 20, **different):
        machine.system("awk", "dirname", "mktemp", "rm", "tail", "tee")
        machine.program("df", DF.format(free=free))
        machine.program("make", MAKE.format(**{**GREEN, **different}))
        return machine.run(".ci/run")

    return run


PARTS = [
    "lint",
    "compiled-once",
    "test",
    "test-fuzz",
    "demo",
    "demo-trees",
    "demo-oip",
    "demo-batch",
]


def test_ci_lints_tests_and_runs_the_demos(ci):
    done, log = ci()
    assert done.returncode == 0, done.stderr
    targets = {"lint": "peers", "test": "test-all"}
    assert log.splitlines() == [f"make {targets.get(part, part)}" for part in PARTS]
    lines = done.stdout.splitlines()
    assert lines[0] == "disk: 40 GiB free"
    lines = lines[lines.index("== closing lines") + 1 :]
    assert [line for line in lines if not line.startswith("took: ")] == [
        "== 5 passed in 1s ==",
        "rust: 3 passed; 0 failed; 1 ignored, in 1 runs",
        "demo ok: 8 scores",
        "demo ok: 9 scores",
        "demo ok: 7 scores",
        "demo ok: 6 scores",
    ]
    took = [line.split()[1] for line in lines if line.startswith("took: ")]
    assert took == ["test-stacks", *PARTS]


def test_ci_ends_at_once_where_the_disk_has_no_room(ci):
    done, log = ci(free=3 << 20)
    assert done.returncode == 69
    assert "at least 16 GiB are needed" in done.stderr
    assert log == ""


@pytest.mark.parametrize(
    "different",
    [
        {"lint": 2},
        {"compiled": 1},
        {"test": 2},
        {"demo_status": 2},
        {"demo": "demo failed"},
        {"demo": "not demo ok"},
        {"demo": "demo ok\nand on"},
        {"trees_status": 2},
        {"trees": "demo failed"},
        {"oip_status": 2},
        {"oip": "demo failed"},
        {"batch_status": 2},
        {"batch": "demo failed"},
    ],
)
def test_ci_fails_when_a_part_fails_or_a_demo_does_not_end_well(ci, different):
    assert ci(**different)[0].returncode != 0


def test_ci_runs_the_demos_after_tests_that_fail(ci):
    done, log = ci(test=2)
    assert "make demo-trees" in log and "make demo-batch" in log
    assert done.stdout.splitlines()[-1] == "demo ok: 6 scores"


def test_ci_names_the_tests_that_failed_at_its_end(ci):
    done, _ = ci(test=2)
    end = done.stdout[done.stdout.index("== closing lines") :]
    assert "test canaries::a_tie ... FAILED" in end
    assert "FAILED testenv/tests/test_a.py::test_b - no answer" in end
