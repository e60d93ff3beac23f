//! Commit records and the manifest: the objects that decide which files hold the output.

use std::collections::BTreeSet;

use outrigger_core::printable;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Error,
    plan::{Chunk, Plan, chunk_name},
    store::Store,
};

/// The name of the manifest in the output.
pub const MANIFEST: &str = "manifest.json";
/// The directories of the output.
pub(crate) const COMMITS: &str = "commit";
pub(crate) const DATA: &str = "data";
pub(crate) const DEAD: &str = "dead";
pub(crate) const WORKERS: &str = "worker";

/// The commit of a chunk: the files that hold its rows. The first one counts.
///
/// A chunk that takes long is committed in parts too: a part is the commit of some of its rows, which
/// need no further work. Parts follow each other from the first row of the chunk on. The commit of the
/// chunk names the parts, so no row depends on parts that it does not name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The number of the chunk.
    pub chunk: u64,
    /// The position of the first row of a part among those of the chunk; 0 for a whole chunk.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start: u64,
    /// The name of the attempt at it, which is random.
    pub attempt: String,
    /// The rows of the input.
    pub rows: u64,
    /// The rows in the file of the output.
    pub scored: u64,
    /// The rows in the file of dead letters.
    pub dead: u64,
    /// The file of the output; `None` if no row was scored.
    pub data: Option<DataFile>,
    /// The file of dead letters; `None` if no row is dead.
    pub dead_letters: Option<DataFile>,
    /// The version of the model, if the hosts name one.
    pub version: Option<String>,
    /// The hosts that answered.
    pub hosts: BTreeSet<String>,
    /// The time of the commit (RFC 3339).
    pub time: String,
    /// The parts that have the files, in order; none if the chunk was committed at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Commit>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A file of the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Its name in the output.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The BLAKE3 hash of its content, in hexadecimal digits.
    pub blake3: String,
}

/// The whole output: the commits of all chunks, in order. It is written last, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The name of the job.
    pub job: String,
    /// The fingerprint of its plan.
    pub fingerprint: String,
    /// The name of the model.
    #[serde(default)]
    pub model: String,
    /// The version of the model that scored all rows, if the hosts name one.
    #[serde(default)]
    pub version: Option<String>,
    /// The digest of the model, if its version is one, as those of Outrigger are.
    #[serde(default)]
    pub digest: Option<String>,
    /// The rows of the input.
    pub rows: u64,
    /// The rows of the output.
    pub scored: u64,
    /// The dead letters.
    pub dead: u64,
    /// Remarks for people about columns of the input that may be meant for features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// The commits, in the order of the input. A chunk that was committed in parts has one for each.
    pub chunks: Vec<Commit>,
}

/// The name of a chunk's commit.
fn commit_name(chunk: u64) -> String {
    format!("{COMMITS}/{}.json", chunk_name(chunk))
}

fn part_name(chunk: u64, start: u64) -> String {
    format!("{COMMITS}/{}-{}.json", chunk_name(chunk), chunk_name(start))
}

impl Commit {
    /// The commit of a chunk that consists of these parts, of which the last one is committed now.
    pub(crate) fn of_parts(parts: Vec<Self>) -> Option<Self> {
        let last = parts.last()?.clone();
        let sum = |of: fn(&Self) -> u64| parts.iter().map(of).sum();
        Some(Self {
            start: 0,
            rows: sum(|part| part.rows),
            scored: sum(|part| part.scored),
            dead: sum(|part| part.dead),
            data: None,
            dead_letters: None,
            hosts: parts.iter().flat_map(|part| part.hosts.clone()).collect(),
            parts,
            ..last
        })
    }

    /// The commits with the files: the parts, or this one.
    pub(crate) fn with_files(self) -> Vec<Self> {
        if self.parts.is_empty() { vec![self] } else { self.parts }
    }

    /// Writes a part, unless there is one with its first row: either has what a worker needs that goes
    /// on.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn write_part(&self, store: &Store) -> Result<(), Error> {
        let name = part_name(self.chunk, self.start);
        let created = store.create(&name, &json(self)?);
        created.map(drop).map_err(|error| Error::store(&name, &error))
    }

    /// The parts of a chunk that is not committed, from its first row on. One that is damaged ends
    /// them.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn read_parts(store: &Store, chunk: &Chunk) -> Result<Vec<Self>, Error> {
        let mut parts = Vec::new();
        let mut start = 0;
        while let Some(part) = Self::read_part(store, chunk.number, start)? {
            if part.rows > chunk.count() - start {
                break;
            }
            start += part.rows;
            parts.push(part);
        }
        Ok(parts)
    }

    /// The part of a chunk that begins with this row, if it is whole.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn read_part(store: &Store, chunk: u64, start: u64) -> Result<Option<Self>, Error> {
        let part: Option<Self> = read_if_whole(store, &part_name(chunk, start), true)?;
        let is_right = |part: &Self| {
            let is_there = part.chunk == chunk && part.start == start;
            is_there && part.rows > 0 && part.scored + part.dead == part.rows
        };
        Ok(part.filter(is_right))
    }

    /// Writes the commit unless the chunk has one. Returns true if this one counts.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn write(&self, store: &Store) -> Result<bool, Error> {
        let name = commit_name(self.chunk);
        let json = json(self)?;
        store.create(&name, &json).map_err(|error| Error::store(&name, &error))
    }

    /// The commit of a chunk, if it has one.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(store: &Store, chunk: u64) -> Result<Option<Self>, Error> {
        read(store, &commit_name(chunk))
    }

    /// The commits of several chunks, in their order.
    ///
    /// # Errors
    /// One cannot be read.
    pub(crate) fn read_all(
        store: &Store,
        chunks: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<Option<Self>>, Error> {
        let names: Vec<_> = chunks.into_iter().map(commit_name).collect();
        let found = store.read_all(&names).map_err(|error| Error::store(COMMITS, &error))?;
        names.iter().zip(found).map(|(name, json)| parsed(name, json)).collect()
    }
}

/// The chunks and the first rows of all parts, also of chunks that are committed.
///
/// # Errors
/// The store failed.
pub(crate) fn parts(store: &Store) -> Result<BTreeSet<(u64, u64)>, Error> {
    let names = store.list(COMMITS).map_err(|error| Error::store(COMMITS, &error))?;
    Ok(names.iter().filter_map(|name| part_of(name)).collect())
}

/// The chunk and the first row of a part with this name; `None` for other commits.
fn part_of(name: &str) -> Option<(u64, u64)> {
    let (chunk, start) = name.strip_suffix(".json")?.split_once('-')?;
    Some((chunk.parse().ok()?, start.parse().ok()?))
}

/// True if a name has the form of those of attempts and parts: two numbers with a hyphen between them.
pub(crate) fn is_own(name: &str) -> bool {
    let is_number = |it: &str| it.len() >= 8 && it.bytes().all(|it| it.is_ascii_hexdigit());
    let numbers = name.split_once('.').and_then(|(numbers, _)| numbers.split_once('-'));
    numbers.is_some_and(|(chunk, other)| is_number(chunk) && is_number(other))
}

/// The numbers of the chunks that are committed.
///
/// # Errors
/// The store failed.
pub(crate) fn committed(store: &Store) -> Result<BTreeSet<u64>, Error> {
    let names = store.list(COMMITS).map_err(|error| Error::store(COMMITS, &error))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect())
}

impl Manifest {
    /// Reads the manifest; `None` while the job is not finished.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(store: &Store) -> Result<Option<Self>, Error> {
        read(store, MANIFEST)
    }

    /// The files of the output, in the order of the input.
    pub fn files(&self) -> impl Iterator<Item = &DataFile> {
        self.chunks.iter().filter_map(|chunk| chunk.data.as_ref())
    }

    /// The files of the dead letters, in the order of the input.
    pub fn dead_letters(&self) -> impl Iterator<Item = &DataFile> {
        self.chunks.iter().filter_map(|chunk| chunk.dead_letters.as_ref())
    }

    /// Writes the manifest of a job whose chunks are all committed, unless there is one, and removes
    /// the files that it does not name. Returns the one that counts.
    ///
    /// # Errors
    /// The store failed, or the commits are not those of all rows.
    pub(crate) fn write(plan: &Plan, store: &Store) -> Result<Self, Error> {
        let manifest = Self::of(plan, store)?;
        let json = json(&manifest)?;
        store.create(MANIFEST, &json).map_err(|error| Error::store(MANIFEST, &error))?;
        let manifest =
            Self::read(store)?.ok_or_else(|| Error::failed("the manifest was removed"))?;
        manifest.sweep(store).map_err(|error| Error::store(DATA, &error))?;
        Ok(manifest)
    }

    fn of(plan: &Plan, store: &Store) -> Result<Self, Error> {
        let commits = Commit::read_all(store, 0..plan.scoring.chunks())?;
        let mut chunks = Vec::with_capacity(commits.len());
        for (chunk, commit) in plan.scoring.all_chunks().zip(commits) {
            let missing = || Error::failed(format!("the chunk {} is not committed", chunk.number));
            let commit = commit.ok_or_else(missing)?;
            check(&commit, &chunk)?;
            chunks.extend(commit.with_files());
        }
        let sum = |of: fn(&Commit) -> u64| chunks.iter().map(of).sum();
        Ok(Self {
            job: plan.job.clone(),
            fingerprint: plan.fingerprint.clone(),
            model: plan.scoring.model.clone(),
            version: plan.scoring.version.clone(),
            digest: plan.scoring.digest().map(|digest| digest.to_string()),
            rows: sum(|chunk| chunk.rows),
            scored: sum(|chunk| chunk.scored),
            dead: sum(|chunk| chunk.dead),
            remarks: plan.remarks.clone(),
            chunks,
        })
    }

    /// Removes the files of attempts that lost, those that were never finished, and the parts, which the
    /// commits have too. Files with other names than these have are left alone.
    pub(crate) fn sweep(&self, store: &Store) -> std::io::Result<()> {
        let files = self.files().chain(self.dead_letters());
        let named: BTreeSet<_> = files.map(|file| file.name.as_str()).collect();
        for directory in [DATA, DEAD] {
            for name in store.list(directory)? {
                let path = format!("{directory}/{name}");
                if is_own(&name) && !named.contains(path.as_str()) {
                    store.remove(&path)?;
                }
            }
            store.sweep(directory)?;
        }
        for name in store.list(COMMITS)?.iter().filter(|name| is_own(name)) {
            store.remove(&format!("{COMMITS}/{name}"))?;
        }
        store.sweep(COMMITS)?;
        store.sweep("")
    }
}

/// Checks that a commit has all rows of its chunk.
fn check(commit: &Commit, chunk: &Chunk) -> Result<(), Error> {
    let mut end = 0;
    let follows = |part: &Commit| {
        let is_next = part.start == end && part.scored + part.dead == part.rows;
        end += part.rows;
        is_next
    };
    let are_parts = commit.parts.iter().all(follows);
    let has_parts = commit.parts.is_empty() || (are_parts && end == commit.rows);
    let has_rows = commit.rows == chunk.count() && commit.scored + commit.dead == commit.rows;
    if has_rows && has_parts {
        return Ok(());
    }
    Err(Error::failed(format!(
        "the commit of the chunk {} has {} of {} rows",
        chunk.number,
        commit.scored + commit.dead,
        chunk.count()
    )))
}

/// A document with a line feed at its end.
pub(crate) fn json(document: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut json = serde_json::to_vec_pretty(document).map_err(Error::failed)?;
    json.push(b'\n');
    Ok(json)
}

/// A document of the store; `None` if there is none of this name.
pub(crate) fn read<T: DeserializeOwned>(store: &Store, name: &str) -> Result<Option<T>, Error> {
    parsed(name, store.read(name).map_err(|error| Error::store(name, &error))?)
}

/// A document of the store on which no row depends; `None` if there is none of this name, or if it is
/// damaged, as a crash of the machine may leave it. `is_reported`: damage is reported on standard
/// error.
///
/// # Errors
/// The store failed.
pub(crate) fn read_if_whole<T: DeserializeOwned>(
    store: &Store,
    name: &str,
    is_reported: bool,
) -> Result<Option<T>, Error> {
    let json = store.read(name).map_err(|error| Error::store(name, &error))?;
    Ok(if_whole(name, json, is_reported))
}

/// The same of its JSON.
pub(crate) fn if_whole<T: DeserializeOwned>(
    name: &str,
    json: Option<Vec<u8>>,
    is_reported: bool,
) -> Option<T> {
    parsed(name, json).unwrap_or_else(|error| {
        if is_reported {
            let error = printable(error.to_string());
            eprintln!("outrigger: {error}: the object is damaged, and counts as absent");
        }
        None
    })
}

/// A document from its JSON; `None` if there is none.
fn parsed<T: DeserializeOwned>(name: &str, json: Option<Vec<u8>>) -> Result<Option<T>, Error> {
    let parsed = json.map(|json| serde_json::from_slice(&json)).transpose();
    parsed.map_err(|error| Error::failed(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attempts_and_parts_have_names_of_their_form() {
        for own in
            ["00000000-0a1b2c3d.parquet", "123456789-00000000.jsonl", "00000007-00000100.json"]
        {
            assert!(is_own(own), "{own}");
        }
        for other in ["notes.parquet", "part-00000-0a1b2c3d.parquet", "00000000.json", "-.json", ""]
        {
            assert!(!is_own(other), "{other}");
        }
    }
}
