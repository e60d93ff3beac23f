"""The bill of materials is valid, complete, and belongs to this binary."""

import hashlib
import json
import re
import tomllib

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing

from outrigger_testenv.binary import outrigger, repository
from outrigger_testenv.image import sbom
from outrigger_testenv.image.crates import Crate, of_tests_only, parse

TREE = """\
0|app v1.0.0 (/src/app)|Apache-2.0|
1|left v0.1.0|MIT/Apache-2.0|
2|shared v2.0.0|MIT|
1|right v0.2.0|ISC| (*)
2|shared v2.0.0|MIT| (*)
"""


@pytest.fixture(scope="module")
def document(built):
    """The parsed document."""
    return json.loads(built.sbom)


@pytest.fixture(scope="module")
def crates(document):
    """The crates in the document, by name and version."""
    found = (each for each in document["components"] if each["type"] == "library")
    return {(each["name"], each["version"]): each for each in found}


def test_it_keeps_to_the_schema(built):
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(built.sbom.decode()) is None


def test_it_names_every_crate_that_left_a_trace_in_the_binary(crates):
    # The binary contains paths of sources, for backtraces and panic messages.
    traces = re.findall(
        rb"/registry/src/[^/\0]+/([\w-]+?)-(\d+\.\d+\.\d+[\w.+-]*)/", outrigger().read_bytes()
    )
    linked = {(name.decode(), version.decode()) for name, version in traces}
    assert {"tokio", "tonic", "rustls"} <= {name for name, _ in linked}
    assert linked - crates.keys() <= of_tests_only("outrigger-cli")


def test_it_names_no_crate_that_the_lock_file_has_not(crates):
    lock = tomllib.loads((repository() / "Cargo.lock").read_text())["package"]
    known = {(each["name"], each["version"]): each.get("checksum") for each in lock}
    assert crates.keys() <= known.keys()
    for crate, each in crates.items():
        hashes = [entry["content"] for entry in each.get("hashes", [])]
        assert hashes == [known[crate]] if known[crate] else not hashes


def test_every_crate_has_a_licence_that_spdx_knows(crates):
    for crate, each in crates.items():
        (choice,) = each["licenses"]
        assert "expression" in choice or "id" in choice["license"], crate


def test_every_licence_is_one_that_cargo_deny_would_let_in(crates):
    policy = tomllib.loads((repository() / "deny.toml").read_text())
    allowed, spdx = set(policy["licenses"]["allow"]), get_spdx_licensing()
    for crate in crates.values():
        (choice,) = crate["licenses"]
        expression = spdx.parse(choice.get("expression") or choice["license"]["id"])
        verdicts = {
            each: spdx.TRUE if each.render() in allowed else spdx.FALSE
            for each in expression.symbols
        }
        assert expression.subs(verdicts, simplify=True) == spdx.TRUE, (crate["name"], expression)


def test_its_digests_are_those_of_the_files_in_the_image(document, root):
    program = document["metadata"]["component"]
    files = [each for each in document["components"] if each["type"] == "file"]
    named = {each["name"].lstrip("/"): each for each in files} | {sbom.BINARY: program}
    assert "etc/ssl/certs/ca-certificates.crt" in named
    for name, each in named.items():
        digest = hashlib.sha256((root / name).read_bytes()).hexdigest()
        assert each["hashes"] == [{"alg": "SHA-256", "content": digest}], name


def test_everything_is_reached_from_the_program(document):
    uses = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    reached, open_ = set(), ["outrigger"]
    while open_:
        ref = open_.pop()
        if ref not in reached:
            reached.add(ref)
            open_ += uses[ref]
    assert {each["bom-ref"] for each in document["components"]} <= reached


def test_cargos_tree_is_read_with_the_dependencies_of_each_crate():
    tree = parse(TREE)
    left, right = Crate("left", "0.1.0", "MIT/Apache-2.0"), Crate("right", "0.2.0", "ISC")
    shared = Crate("shared", "2.0.0", "MIT")
    assert tree.root == Crate("app", "1.0.0", "Apache-2.0")
    assert tree.uses[tree.root] == {left, right}
    assert tree.uses[left] == tree.uses[right] == {shared}
    assert tree.crates == [left, right, shared]
    assert left.expression == "MIT OR Apache-2.0"
