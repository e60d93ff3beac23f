"""The counts of a program's cost: how dumps are read, and how limits are held."""

import pytest

from outrigger_testenv.cost import __main__ as cost
from outrigger_testenv.cost import parts
from outrigger_testenv.cost.meter import Counts, median, parsed

# A function of the program that allocates once by itself and once through another, and copies.
DUMP = """events: Ir
ob=/target/outrigger
fl=???
fn=work
0 100
cob=/target/outrigger
cfn=mi_malloc_aligned
calls=3 0
0 60
cob=/tmp/copies.so
cfn=memcpy
calls=2 0
0 50

fn=mi_malloc_aligned
0 40
cfn=mi_malloc
calls=3 0
0 20

fn=mi_malloc
0 20

ob=/tmp/copies.so
fn=memcpy
0 30
cob=/lib/libc.so.6
cfn=__memcpy_avx_unaligned
calls=2 0
0 20

ob=/lib/libc.so.6
fn=__memcpy_avx_unaligned
0 20

totals: 210
"""


def test_a_dump_has_instructions_without_those_of_counting_and_allocations_once():
    assert parsed(DUMP) == (180, 3)


def test_the_median_is_that_of_each_count():
    counts = [Counts(1, 9, 5, 0), Counts(2, 8, 5, 7), Counts(3, 1, 6, 1)]
    assert median(counts) == Counts(2, 8, 5, 1)
    assert (counts[2] - counts[0]) / 2 == Counts(1, -4, 0.5, 0.5)


@pytest.mark.parametrize(
    ("allocations", "above", "beyond"),
    [
        (103, {}, 0),
        (104, {}, 1),
        (104, {"json": {"allocations": {"limit": 110}}}, 0),
        (111, {"json": {"allocations": {"limit": 110}}}, 1),
    ],
)
def test_a_count_is_held_to_the_anchors_unless_its_limit_is_recorded(
    allocations, above, beyond, capsys
):
    def table(count):
        return {"json": {"instructions": 1, "allocations": count, "copied_bytes": 1} | CALLS}

    assert cost._check(table(100), table(allocations), above) == beyond
    assert f"{beyond} beyond their limits" in capsys.readouterr().out


CALLS = {"system_calls": 4}


def test_each_count_has_an_anchor():
    names = [name for of_part in parts.NAMES.values() for name in of_part]
    limits = cost.yaml.safe_load((cost.DATA / "limits.yaml").read_text())
    assert sorted(limits["anchors"]) == sorted(names)
    assert set(limits["above"]) <= set(names)
