"""The documentation is complete where it promises to be, and its links are valid."""

import re

import pytest

from outrigger_testenv.attack.cases import CASES
from outrigger_testenv.binary import repository

DOCS = repository() / "docs"
SOURCES = ("crates/**/*.rs", "testenv/tests/**/*.py")
PAGES = [repository() / "README.md", repository() / "testenv" / "README.md", *DOCS.rglob("*.md")]


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


def test_tests_of_security_claims_exist():
    section = (DOCS / "security.md").read_text().partition("## Promises")[2]
    cells = re.findall(r"^\| .+ \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)[1:]
    named = [each for cell in cells for each in re.findall(r"`(.+?)`", cell)]
    sources = [file for each in SOURCES for file in repository().glob(each)]
    text = "\n".join(file.read_text() for file in sources)
    functions = re.findall(r"\b(?:fn|def) (\w+)", text)
    attacks = {case.name for case in CASES}
    assert named
    for each in named:
        if each in attacks:
            continue
        if "/" in each:
            assert (repository() / each).exists(), each
        else:
            beginning = each.removesuffix("…")
            fits = str.startswith if each.endswith("…") else str.__eq__
            assert any(fits(function, beginning) for function in functions), each
