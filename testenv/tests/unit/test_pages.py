"""The documentation is complete where it promises to be, and its links are valid."""

import re

import pytest

from outrigger_testenv.attack.cases import CASES
from outrigger_testenv.binary import repository
from outrigger_testenv.promises import running, shows_something

DOCS = repository() / "docs"
SOURCES = ("crates/**/*.rs", "testenv/tests/**/*.py")
READMES = [repository() / part / "README.md" for part in (".", "testenv", "packages/delta")]
PAGES = [*READMES, *DOCS.rglob("*.md")]


def rows(page, section=""):
    """The rows of tables whose first cell is code, by that cell, from the heading `section` on."""
    text = page.read_text()
    lines = re.findall(r"^\| `(\w+)` \| (.+) \|$", text[text.index(section) :], re.MULTILINE)
    return {first: [cell.strip() for cell in rest.split(" | ")] for first, rest in lines}


def anchors(page):
    """The anchors that links can point to: headings in GitHub's form."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_reason_has_a_cause_and_a_remedy():
    reasons = rows(DOCS / "errors.md")
    explained = rows(DOCS / "troubleshooting.md", "\n## Reasons\n")
    assert list(explained) == list(reasons)
    for reason, cells in explained.items():
        assert len(cells) == 2 and all(cells), reason


def test_the_readme_lists_every_page():
    readme = (repository() / "README.md").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f"(docs/{page.name})" not in readme] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.fixture(scope="module")
def shown():
    """The last cell of each promise in security.md: its tests."""
    section = (DOCS / "security.md").read_text().partition("## Promises")[2]
    return re.findall(r"^\| .+ \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)[1:]


def meant(name, names):
    """The names that are meant by one that may end with an ellipsis."""
    beginning = name.removesuffix("…")
    fits = str.startswith if name.endswith("…") else str.__eq__
    return {each for each in names if fits(each, beginning)}


def test_each_security_claim_names_a_test_that_runs_or_a_case(shown):
    files = [file for each in SOURCES for file in repository().glob(each)]
    known = set().union(*map(running, files), (case.name for case in CASES))
    assert len(shown) > 10
    for cell in shown:
        named = re.findall(r"`(.+?)`", cell)
        assert named, cell
        for each in named:
            shows = shows_something(repository() / each) if "/" in each else meant(each, known)
            assert shows, each


def test_tests_of_security_claims_are_in_the_file_that_is_named_with_them(shown):
    pairs = re.findall(r"`([^`]+/[^`]+)`: ((?:`[^`/]+`(?:, )?)+)", " ".join(shown))
    assert len(pairs) > 10
    for file, names in pairs:
        there = running(repository() / file) | {case.name for case in CASES}
        missing = [each for each in re.findall(r"`(.+?)`", names) if not meant(each, there)]
        assert not missing, file


RUST = """
fn helper() {}
#[test]
fn runs() {}
#[tokio::test(flavor = "multi_thread",
    worker_threads = 2)]
/// A comment.
async fn waits() {}
#[test]
#[ignore = "slow"]
fn left_out() {}
fn after() {}
"""
PYTHON = """
def helper(): ...
def test_runs(): ...
@pytest.mark.skip(reason="slow")
def test_left_out(): ...
@pytest.mark.skipif(not THERE, reason="needs it")
def test_runs_where_it_can(): ...
"""


def test_a_test_that_does_not_run_shows_no_claim(tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (tmp_path / "Cargo.toml").touch()
    (source / "lib.rs").write_text("mod known;\nfn helper() {}")
    (source / "known.rs").write_text(RUST)
    (source / "forgotten.rs").write_text(RUST)
    (tmp_path / "test_some.py").write_text(PYTHON)
    assert running(source / "known.rs") == {"runs", "waits"}
    assert running(source / "forgotten.rs") == set()
    assert running(tmp_path / "test_some.py") == {"test_runs", "test_runs_where_it_can"}
    assert shows_something(source / "known.rs") and shows_something(source)
    absent = tmp_path / "absent.json"
    assert not any(map(shows_something, [source / "lib.rs", source / "forgotten.rs", absent]))


def test_every_attack_shows_a_security_claim(shown):
    named = re.findall(r"`(.+?)`", " ".join(shown))
    assert [case.name for case in CASES if not any(meant(n, [case.name]) for n in named)] == []
