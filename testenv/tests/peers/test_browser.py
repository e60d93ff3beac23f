"""Tests of the browser fixture itself."""

import pytest

from outrigger_testenv.browser import Browser

pytestmark = pytest.mark.needs("chromium")


@pytest.mark.parametrize("written", ["", "1", "1\n"])
def test_a_port_file_not_yet_written_is_waited_for(tmp_path, written):
    profile = tmp_path / "profile"
    profile.mkdir()
    (profile / "DevToolsActivePort").write_text(written)
    with Browser(tmp_path) as page:
        assert page.run("document.location.href") == "about:blank"
