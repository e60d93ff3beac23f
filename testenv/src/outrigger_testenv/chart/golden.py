"""Writes the golden files: `make chart-golden`."""

from outrigger_testenv.chart.cases import ALL_CASES


def main() -> None:
    """Replaces all golden files by the present output of the charts."""
    for case in ALL_CASES.values():
        case.golden.parent.mkdir(exist_ok=True)
        case.golden.write_text(case.rendered.text)
        case.golden_notes.write_text(case.rendered.notes)
        print(case.golden)


if __name__ == "__main__":
    main()
