//! The first dead letters of a job, for people.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Error, batch::Death, store::Store};

/// The most dead letters that are kept, and so the most files of them.
const MOST: usize = 50;
/// The most bytes that are read of one file.
const MOST_BYTES: u64 = 256 << 10;

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The file of the input.
    pub file: PathBuf,
    /// The number of the row in the file, from 0.
    pub row: u64,
    /// The end of the row.
    #[serde(flatten)]
    pub death: Death,
}

/// The first dead letters of the files that were found so far.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    files: Vec<String>,
    read: usize,
    letters: Vec<Letter>,
}

impl Letters {
    /// Takes the name of a file with dead letters.
    pub(crate) fn add(&mut self, name: &str) {
        if self.files.len() < MOST {
            self.files.push(name.to_owned());
        }
    }

    /// The dead letters, of which at most a few dozen are read.
    ///
    /// # Errors
    /// The store failed. A line that is no dead letter is left out.
    pub(crate) fn read(&mut self, store: &Store) -> Result<&[Letter], Error> {
        while self.letters.len() < MOST
            && let Some(name) = self.files.get(self.read)
        {
            let start = store.read_start(name, MOST_BYTES);
            let start = start.map_err(|error| Error::store(name, &error))?.unwrap_or_default();
            let lines = start.split(|byte| *byte == b'\n');
            let letters = lines.filter_map(|line| serde_json::from_slice::<Letter>(line).ok());
            self.letters.extend(letters.take(MOST - self.letters.len()));
            self.read += 1;
        }
        Ok(&self.letters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(row: u64) -> String {
        let death = Death::invalid("no value".to_owned());
        let letter = Letter { file: "a.parquet".into(), row, death };
        serde_json::to_string(&letter).expect("JSON") + "\n"
    }

    #[test]
    fn the_first_letters_of_all_files_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        let mut letters = Letters::default();
        assert_eq!(letters.read(&store).expect("nothing"), []);
        let lines = format!("{}{{\n{}", line(3), line(7));
        store.replace("dead/0.jsonl", lines.as_bytes()).expect("written");
        letters.add("dead/0.jsonl");
        let rows = |letters: &mut Letters| -> Vec<_> {
            letters.read(&store).expect("read").iter().map(|letter| letter.row).collect()
        };
        assert_eq!(rows(&mut letters), [3, 7]);
        let many: String = (0..1000).map(line).collect();
        store.replace("dead/1.jsonl", many.as_bytes()).expect("written");
        for name in ["dead/none.jsonl", "dead/1.jsonl", "dead/0.jsonl"] {
            letters.add(name);
        }
        let expected: Vec<_> = [3, 7].into_iter().chain(0..MOST as u64 - 2).collect();
        assert_eq!(rows(&mut letters), expected);
    }
}
