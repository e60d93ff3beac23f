"""scripts/house: what it counts, and the limits that hold for this repository."""

import importlib.machinery
import importlib.util
import sys

import pytest

from outrigger_testenv.binary import repository

# The most files that may depend on one another in a circle.
CIRCLE = 6


@pytest.fixture(scope="module")
def house():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("house", str(repository() / "scripts" / "house"))
    spec = importlib.util.spec_from_loader("house", loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module
    loader.exec_module(module)
    yield module
    del sys.modules["house"]


@pytest.fixture
def crate(house, tmp_path):
    """Counts a crate of these files."""

    def count(**files):
        for name, text in files.items():
            path = tmp_path / "crates" / "made" / "src" / f"{name.replace('__', '/')}.rs"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return house.measure(tmp_path)["made"]

    return count


def test_no_circle_of_files_is_large(house):
    counted = house.measure(repository())
    assert len(counted) > 10
    sizes = {name: len(crate["circles"][0]) for name, crate in counted.items() if crate["circles"]}
    over = {name: counted[name]["circles"][0] for name in sizes if sizes[name] > CIRCLE}
    assert over == {}


def test_comments_blanks_and_tests_are_no_lines(crate):
    counted = crate(
        lib="""
//! About this.
/* A block
   /* in a block */ */
pub fn f() -> &'static str { // why
    r#"a // string
of two lines"#
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod inside { fn g() {} }
""",
        tests="fn h() {}",
    )
    assert counted["lines"] == 4
    assert counted["lengths"] == [4]


def test_methods_of_a_type_are_added_up_over_files_and_traits(crate):
    counted = crate(
        lib="mod a; pub struct T<X>(X); impl<X: Into<u8>> T<X> { fn f() {} fn g() {} }",
        a="use std::fmt; impl<X> fmt::Debug for crate::T<X> where X: Copy { fn fmt() {} }"
        " pub fn h() -> impl Fn() { || {} }",
    )
    assert counted["methods"] == {"T": 3}


def test_a_circle_is_found_through_reexports_and_paths(crate):
    counted = crate(
        lib="mod a; mod b; mod c; pub use b::B;",
        a="use crate::B; pub struct A(B);",
        b="pub struct B; pub fn f() { crate::c::C::new(); }",
        c="use super::a::A as Other; pub struct C(Other);",
    )
    assert counted["circles"] == [["a.rs", "b.rs", "c.rs"]]


def test_modules_their_parts_and_their_tests_are_no_circle(crate):
    counted = crate(
        lib="mod a; mod b; pub struct L;",
        a="mod part; use crate::b; pub struct A(part::P);",
        a__part="use super::A; pub struct P(Box<A>);",
        b="pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
    )
    assert counted["circles"] == []


def test_a_repository_without_crates_is_an_error(house, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["house", str(tmp_path)])
    assert house.main() == 2
    assert "no crates/*/src" in capsys.readouterr().err
