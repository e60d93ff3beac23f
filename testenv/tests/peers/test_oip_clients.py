"""The clients of docs/oip.md print the scores of a model, as they stand there."""

import math
import os
import re
import shutil
import subprocess

import pytest

from outrigger_testenv.binary import repository
from outrigger_testenv.oip import environments
from outrigger_testenv.processes import free_ports
from outrigger_testenv.variants import good

PAGE = repository() / "docs" / "oip.md"
ADDRESS = "localhost:8001"
MODEL, AGE, PRICES = "offers", 35, (9.5, 12)
# The longest run of a client, which may be compiled before, in seconds.
LONGEST = 300

# The file of a client, and the command that runs it.
CLIENTS = {
    "python": ("client.py", []),
    "bash": ("client.sh", ["bash"]),
    "go": ("client.go", ["go", "run"]),
    "java": ("Offers.java", ["java"]),
}
# Where compilers are that PATH may not have.
MORE = "/usr/local/go/bin"


def program(language):
    """The client of the page in a language."""
    section = re.search(r"^## Clients\n(.+?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    (found,) = re.findall(rf"^```{language}\n(.+?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found.count(ADDRESS) == 1
    return found


@pytest.fixture
def address(own_stack, package):
    """The listener of a stack that serves the model of the page."""
    (port,) = free_ports(1)
    models = [{"name": MODEL, "view": "features"}]
    stack = own_stack(overrides={"server": {"oip": f"127.0.0.1:{port}"}}, models=models)
    stack.push(package(good), MODEL)
    return f"127.0.0.1:{port}"


@pytest.fixture
def command(language):
    """The command that runs a client. Skips the test where its language is not installed."""
    if language == "python":
        environments.needs(environments.TRITONCLIENT)
        return [environments.python(environments.TRITONCLIENT)]
    program, *arguments = CLIENTS[language][1]
    found = shutil.which(program, path=f"{os.environ['PATH']}:{MORE}")
    return [found, *arguments] if found else pytest.skip(f"not installed: {program}")


@pytest.mark.parametrize("language", CLIENTS)
def test_a_client_prints_the_scores(language, command, address, tmp_path):
    file = tmp_path / CLIENTS[language][0]
    file.write_text(program(language).replace(ADDRESS, address))
    done = subprocess.run(
        [*command, file], capture_output=True, text=True, timeout=LONGEST, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = [float(number) for number in re.findall(r"0\.\d{5,}", done.stdout)]
    expected = [1 / (1 + math.exp(-0.05 * (AGE - 40) - 0.1 * price)) for price in PRICES]
    assert printed == pytest.approx(expected, abs=1e-6)
