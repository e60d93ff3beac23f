//! Rows that may have ended a host before the job began.

use std::ops::Range;

use outrigger_dispatch::HostId;

/// Rows that may have ended a host: the connection broke, or no answer came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// The number of their file.
    pub(crate) file: usize,
    /// Their positions among the rows of the file that are scored.
    pub(crate) rows: Range<u64>,
    pub(crate) host: HostId,
}

/// The hosts that some of these rows of a file may have ended.
pub(crate) fn hosts(suspects: &[Suspect], file: usize, rows: &Range<u64>) -> Vec<HostId> {
    let is_one =
        |it: &&Suspect| it.file == file && it.rows.start < rows.end && rows.start < it.rows.end;
    let mut hosts: Vec<_> = suspects.iter().filter(is_one).map(|it| it.host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_rows_that_overlap() {
        let suspect = |file, rows, host| Suspect { file, rows, host: HostId(host) };
        let suspects =
            [suspect(0, 3..6, 2), suspect(0, 5..6, 1), suspect(1, 0..9, 3), suspect(0, 4..5, 2)];
        for (rows, expected) in [(0..3, &[][..]), (0..4, &[2]), (4..9, &[1, 2]), (6..9, &[])] {
            let expected: Vec<_> = expected.iter().copied().map(HostId).collect();
            assert_eq!(hosts(&suspects, 0, &rows), expected, "{rows:?}");
        }
        assert_eq!(hosts(&suspects, 1, &(8..20)), [HostId(3)]);
    }
}
