"""Text of documentation pages that commands write."""

import pytest

from outrigger_testenv.bench import tables
from outrigger_testenv.binary import repository
from outrigger_testenv.marks import MarksMissing, insert

SECURITY = "docs/security.md"


def test_a_page_is_rewritten_between_its_marks_only(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n")
    for text in ("new\n", "newer \\1\n"):
        insert(page, "tables", text)
        expected = f"before\n<!-- tables: begin -->\n{text}<!-- tables: end -->\nafter\n"
        assert page.read_text() == expected
    with pytest.raises(MarksMissing, match="has no marks"):
        insert(page, "headline", "text")


@pytest.mark.parametrize(
    ("page", "name"),
    [(tables.PAGE, "tables"), (tables.README, "headline"), (SECURITY, "attacks")],
)
def test_the_documentation_has_the_marks(page, name, tmp_path):
    copy = tmp_path / "page.md"
    copy.write_text((repository() / page).read_text())
    insert(copy, name, "text\n")
