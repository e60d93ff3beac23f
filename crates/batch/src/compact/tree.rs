//! The tree of a compaction: which files become one, and in which steps.

use std::ops::Range;

use outrigger_tables::Format;

/// The most files that become one in a step.
pub(super) const FAN_IN: usize = 16;

/// A file of the compaction: it has the rows of some consecutive files of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// The positions of the job's files.
    pub(super) files: Range<usize>,
    /// True if it is a file of the new output; others are parts of one, for a time.
    pub(super) is_root: bool,
}

impl Node {
    /// The name of its object.
    pub(super) fn name(&self, format: Format) -> String {
        let directory = if self.is_root { ROOTS } else { PARTS };
        format!("{directory}/{:08}-{:08}.{format}", self.files.start, self.files.end - 1)
    }

    /// The files that become this one, in order. A part of one file is that file of the job.
    pub(super) fn children(&self) -> Vec<Child> {
        let mut size = 1;
        while size * FAN_IN < self.files.len() {
            size *= FAN_IN;
        }
        let child = |start: usize| match start..self.files.end.min(start + size) {
            files if files.len() == 1 => Child::File(files.start),
            files => Child::Part(Self { files, is_root: false }),
        };
        self.files.clone().step_by(size).map(child).collect()
    }

    /// The number of steps below it.
    pub(super) fn height(&self) -> usize {
        let mut height = 0;
        let mut size = FAN_IN;
        while size < self.files.len() {
            (size, height) = (size * FAN_IN, height + 1);
        }
        height
    }
}

/// A file that becomes a part of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Child {
    /// The file of the job at this position.
    File(usize),
    /// A file of the compaction.
    Part(Node),
}

/// The directories of the new output's files, and of their parts.
pub(super) const ROOTS: &str = "data";
pub(super) const PARTS: &str = "part";

/// The files of the new output. Consecutive files of the job of these sizes become one, as long as
/// they have at most `most` bytes together.
pub(super) fn roots(sizes: &[u64], most: u64) -> Vec<Node> {
    let (mut roots, mut start, mut bytes) = (Vec::new(), 0, 0_u64);
    for (file, size) in sizes.iter().enumerate() {
        if file > start && bytes.saturating_add(*size) > most {
            roots.push(Node { files: start..file, is_root: true });
            (start, bytes) = (file, 0);
        }
        bytes = bytes.saturating_add(*size);
    }
    if start < sizes.len() {
        roots.push(Node { files: start..sizes.len(), is_root: true });
    }
    roots
}

/// The nodes that are to be made for these roots, by their heights, from the lowest. Nodes that are
/// there, and those below them, are left out.
///
/// # Errors
/// Those of `is_there`.
pub(super) fn missing<E>(
    roots: &[Node],
    is_there: &mut impl FnMut(&Node) -> Result<bool, E>,
) -> Result<Vec<Vec<Node>>, E> {
    let mut levels = Vec::new();
    roots.iter().try_for_each(|root| add(root, is_there, &mut levels))?;
    Ok(levels)
}

fn add<E>(
    node: &Node,
    is_there: &mut impl FnMut(&Node) -> Result<bool, E>,
    levels: &mut Vec<Vec<Node>>,
) -> Result<(), E> {
    if is_there(node)? {
        return Ok(());
    }
    for child in node.children() {
        if let Child::Part(part) = child {
            add(&part, is_there, levels)?;
        }
    }
    let height = node.height();
    if levels.len() <= height {
        levels.resize_with(height + 1, Vec::new);
    }
    levels[height].push(node.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn root(files: Range<usize>) -> Node {
        Node { files, is_root: true }
    }

    #[test]
    fn consecutive_files_become_one_of_at_most_the_size() {
        assert_eq!(roots(&[3, 3, 3, 9, 1], 6), [root(0..2), root(2..3), root(3..4), root(4..5)]);
        assert_eq!(roots(&[1; 5], 100), [root(0..5)]);
        assert_eq!(roots(&[], 100), []);
    }

    #[test]
    fn a_tree_has_each_file_once_and_in_order() {
        fn leaves(node: &Node) -> Vec<usize> {
            let children = node.children();
            assert!(children.len() <= FAN_IN, "{node:?}");
            let of = |child: &Child| match child {
                Child::File(file) => vec![*file],
                Child::Part(part) => {
                    assert!(part.height() < node.height());
                    leaves(part)
                }
            };
            children.iter().flat_map(of).collect()
        }
        for count in [1, 2, 15, 16, 17, 255, 256, 257, 5000] {
            let files = 3..3 + count;
            assert!(leaves(&root(files.clone())).into_iter().eq(files), "{count}");
        }
    }

    #[test]
    fn the_lowest_nodes_are_made_first_and_none_twice() {
        let all = missing::<Infallible>(&[root(0..300), root(300..301)], &mut |_| Ok(false));
        let all = all.expect("no errors");
        assert_eq!(all.len(), 3);
        // 300 files: 18 parts of 16 and one of 12; of these 1 of 256 and one of 44; and the root.
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [19 + 1, 2, 1]);
        let part = Node { files: 0..256, is_root: false };
        let rest = missing::<Infallible>(&[root(0..300)], &mut |node| Ok(*node == part));
        let rest = rest.expect("no errors");
        assert_eq!(rest.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 1]);
    }
}
