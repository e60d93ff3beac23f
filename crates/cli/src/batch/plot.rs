//! The throughput of a job over time as text.

use std::time::{Duration, UNIX_EPOCH};

use outrigger_batch::History;

/// The rows of text of the plot's area.
const HEIGHT: usize = 8;
/// The columns in front of the area: the figures of the axis.
const AXIS: usize = 11;
/// The widest plot, and the narrowest one.
const WIDEST: usize = 100;
const NARROWEST: usize = 60;
/// The width without a terminal.
const USUAL: usize = 80;
/// The parts of a cell from the bottom.
const CELLS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The parts of a cell.
const PARTS: usize = CELLS.len() - 1;

/// The columns of text that fit the terminal of standard output; some usual number without one.
pub(super) fn width() -> usize {
    let size = terminal_size::terminal_size();
    size.map_or(USUAL, |(terminal_size::Width(columns), _)| columns.into())
}

/// The plot of a history within `width` columns, with a line feed at the end of each row. Nothing if
/// the history has less than two points in time.
pub(super) fn plot(history: &History, width: usize) -> String {
    let rates = history.rates();
    let (Some((from, _)), true) = (rates.first(), rates.len() > 1) else { return String::new() };
    let columns = width.clamp(NARROWEST, WIDEST) - AXIS;
    let heights = averages(&rates, history.to + 1, columns);
    let most = heights.iter().copied().fold(0.0, f64::max);
    let parts: Vec<_> = heights.iter().map(|rate| parts(*rate, most)).collect();
    let mut text = "rows a second\n".to_owned();
    for row in (0..HEIGHT).rev() {
        let figure = if row == HEIGHT - 1 { number(most) } else { String::new() };
        let cell = |filled: &usize| CELLS[filled.saturating_sub(row * PARTS).min(PARTS)];
        let cells: String = parts.iter().map(cell).collect();
        text.push_str(format!("{figure:>8} │ {cells}").trim_end());
        text.push('\n');
    }
    let line = "─".repeat(columns);
    let (from, to) = (time(*from), time(history.to + 1));
    let gap = columns.saturating_sub(from.len() + to.len()).max(1);
    text.push_str(&format!("{:>8} └─{line}\n{:AXIS$}{from}{:gap$}{to}\n", "0", "", ""));
    text
}

/// The average rate in each of `columns` equal parts of the time until `end`.
fn averages(rates: &[(u64, f64)], end: u64, columns: usize) -> Vec<f64> {
    let ends = rates.iter().skip(1).map(|(start, _)| *start).chain([end]);
    let step = |((start, rate), end): (&(u64, f64), u64)| (*start as f64, end as f64, *rate);
    let steps: Vec<_> = rates.iter().zip(ends).map(step).collect();
    let first = rates.first().map_or(0.0, |(start, _)| *start as f64);
    let size = (end as f64 - first) / columns as f64;
    let average = |column: usize| {
        let (from, to) = (first + column as f64 * size, first + (column + 1) as f64 * size);
        let rows =
            |(start, end, rate): &(f64, f64, f64)| (end.min(to) - start.max(from)).max(0.0) * rate;
        steps.iter().map(rows).sum::<f64>() / size
    };
    (0..columns).map(average).collect()
}

/// The filled parts of a column: at least one if there is any rate.
fn parts(rate: f64, most: f64) -> usize {
    if rate <= 0.0 || most <= 0.0 {
        return 0;
    }
    let parts = (rate / most * (HEIGHT * PARTS) as f64).round() as usize;
    parts.clamp(1, HEIGHT * PARTS)
}

/// A rate with two or more digits.
fn number(value: f64) -> String {
    match value {
        _ if value >= 1e7 => format!("{:.0} M", value / 1e6),
        _ if value >= 1e6 => format!("{:.1} M", value / 1e6),
        _ if value >= 1e4 => format!("{:.1} k", value / 1e3),
        _ if value >= 10.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// A time of day, in UTC, without the fractions of its second.
fn time(at: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_secs(at);
    humantime::format_rfc3339_seconds(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(from: u64, step_seconds: u64, rows: &[u64]) -> History {
        let to = from + step_seconds * rows.len() as u64 - 1;
        History { from, to, step_seconds, rows: rows.to_vec() }
    }

    #[test]
    fn a_plot_has_the_largest_rate_and_both_times() {
        let text = plot(&history(1_700_000_000, 4, &[40, 400, 0, 200]), 60);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), HEIGHT + 3, "{text}");
        let cells = |spaces, full| " ".repeat(spaces) + &"█".repeat(full);
        assert_eq!(lines[1], format!("     100 │ {}", cells(13, 11)), "{text}");
        let half = format!("{:8} │ {}{}", "", cells(12, 13), cells(12, 12));
        assert_eq!(lines[HEIGHT / 2 + 1], half, "{text}");
        assert_eq!(lines[HEIGHT + 1], format!("       0 └─{}", "─".repeat(60 - AXIS)));
        assert!(text.contains("2023-11-14T22:13:20Z") && text.ends_with("22:13:36Z\n"), "{text}");
    }

    #[test]
    fn a_plot_is_never_wider_than_it_may_be() {
        let many: Vec<_> = (0..240).map(|at| at * 1000).collect();
        for width in [60, 80, 200, usize::MAX] {
            let text = plot(&history(0, 8, &many), width);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest.is_some_and(|widest| widest <= width.min(WIDEST)), "{text}");
        }
    }

    #[test]
    fn columns_have_the_rows_of_their_time() {
        let rates = history(0, 2, &[20, 0, 40]).rates();
        assert_eq!(averages(&rates, 6, 3), [10.0, 0.0, 20.0]);
        assert_eq!(averages(&rates, 6, 6), [10.0, 10.0, 0.0, 0.0, 20.0, 20.0]);
        assert_eq!(averages(&rates, 6, 2), [20.0 / 3.0, 40.0 / 3.0]);
    }

    #[test]
    fn there_is_no_plot_of_a_moment() {
        assert_eq!(plot(&History::default(), 80), "");
        assert_eq!(plot(&history(7, 1, &[3]), 80), "");
        let silent = plot(&history(7, 1, &[0, 0]), 80);
        assert!(!silent.contains('█') && silent.contains("0.00"), "{silent}");
    }
}
