//! Rows that may have ended a host before the job began.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Rows that may have ended a host: the connection broke, or no answer came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suspect {
    /// The number of their file.
    pub(crate) file: usize,
    /// Their positions among the rows of the file that are scored.
    pub(crate) rows: Range<u64>,
    /// The name of the host, which is the same for all workers of the job.
    pub(crate) host: String,
}

/// The names of the hosts that some of these rows of a file may have ended.
pub(crate) fn hosts<'a>(suspects: &'a [Suspect], file: usize, rows: &Range<u64>) -> Vec<&'a str> {
    let is_one =
        |it: &&Suspect| it.file == file && it.rows.start < rows.end && rows.start < it.rows.end;
    let mut hosts: Vec<_> = suspects.iter().filter(is_one).map(|it| it.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// The suspects of both.
pub(crate) fn merged(mut suspects: Vec<Suspect>, others: Vec<Suspect>) -> Vec<Suspect> {
    for other in others {
        if !suspects.contains(&other) {
            suspects.push(other);
        }
    }
    suspects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspect(file: usize, rows: Range<u64>, host: &str) -> Suspect {
        Suspect { file, rows, host: host.to_owned() }
    }

    #[test]
    fn hosts_are_those_of_rows_that_overlap() {
        let suspects = [
            suspect(0, 3..6, "b"),
            suspect(0, 5..6, "a"),
            suspect(1, 0..9, "c"),
            suspect(0, 4..5, "b"),
        ];
        for (rows, expected) in [(0..3, &[][..]), (0..4, &["b"]), (4..9, &["a", "b"]), (6..9, &[])]
        {
            assert_eq!(hosts(&suspects, 0, &rows), expected, "{rows:?}");
        }
        assert_eq!(hosts(&suspects, 1, &(8..20)), ["c"]);
    }

    #[test]
    fn the_suspects_of_both_are_each_there_once() {
        let (one, two) = (suspect(0, 0..3, "a"), suspect(0, 0..3, "b"));
        let both = merged(vec![one.clone()], vec![one.clone(), two.clone()]);
        assert_eq!(both, [one, two]);
    }
}
