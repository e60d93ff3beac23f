//! The plan of a job: everything that decides about its output. It is written once.

use std::ops::Range;

use outrigger_core::Digest;
use outrigger_tables::{Format, TextColumn};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Error,
    columns::{InputTensor, OutputColumn},
    commit::{self, Commit},
    input::InputFile,
    job::{self, ColumnType, Job, Protocol, Source},
    prepare::suspect::{Suspect, merged},
    store::Store,
};

/// The name of the plan in the output.
pub(crate) const PLAN: &str = "plan.json";
/// The form of the plan that this version writes and reads.
const FORMAT: u32 = 2;

/// A plan. A chunk is a range of rows of one file, and depends on nothing but the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) format: u32,
    /// The name of the job, which is random.
    pub(crate) job: String,
    /// The time of the plan (RFC 3339).
    pub(crate) created: String,
    /// The hash of everything that decides about rows.
    pub(crate) fingerprint: String,
    pub(crate) scoring: Scoring,
    /// Bytes of a row before it is answered, as the first request had them; 0 if unknown.
    #[serde(default)]
    pub(crate) row_bytes: u64,
    /// Bytes of an answer for one row, as the first answer had them.
    pub(crate) answer_bytes: u64,
    /// The file and the number of a row that a host has scored before the job began: hosts are
    /// tested with it. It may be one of another job whose dead letters are scored again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reference: Option<InputFile>,
    /// The memory of the job when it was planned, in bytes. A later run may have another.
    #[serde(default = "job::default_memory")]
    pub(crate) memory: u64,
    /// The rows that may have ended hosts before the job began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) suspects: Vec<Suspect>,
    /// Remarks for people about the columns of the input, which decide nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) remarks: Vec<String>,
}

/// The part of a plan that decides about rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scoring {
    pub(crate) files: Vec<InputFile>,
    pub(crate) format: Format,
    /// The columns that are read from text, with their types.
    pub(crate) types: Vec<TextColumn>,
    /// The protocol of the hosts.
    #[serde(default, skip_serializing_if = "Protocol::is_default")]
    pub(crate) protocol: Protocol,
    pub(crate) model: String,
    /// The version that answered first; `None` if the hosts name none.
    pub(crate) version: Option<String>,
    /// The name of the version that the job states, if it is a tag: `version` is the digest that it
    /// stood for when the job was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
    /// True if requests name the version: the job does, or the hosts list it.
    pub(crate) is_pinned: bool,
    /// As in the [job](crate::Model::row_by_row).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) row_by_row: bool,
    pub(crate) inputs: Vec<InputTensor>,
    pub(crate) keys: Vec<String>,
    pub(crate) outputs: Vec<OutputColumn>,
    pub(crate) chunk_rows: u64,
    /// The format of the files of the output.
    pub(crate) output_format: Format,
}

/// A contiguous range of rows of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Its number, from 0, in the order of the input.
    pub(crate) number: u64,
    /// The number of its file.
    pub(crate) file: usize,
    /// The positions among the rows of the file that are scored.
    pub(crate) rows: Range<u64>,
}

impl Chunk {
    /// The name of the chunk in the names of objects. Names have the order of chunks.
    pub(crate) fn name(&self) -> String {
        chunk_name(self.number)
    }

    /// The number of rows.
    pub(crate) fn count(&self) -> u64 {
        self.rows.end - self.rows.start
    }
}

/// The name of a chunk in the names of objects.
pub(crate) fn chunk_name(number: u64) -> String {
    format!("{number:08}")
}

impl Scoring {
    /// The SHA-256 of the settings, in hexadecimal digits.
    fn fingerprint(&self) -> Result<String, Error> {
        let json = serde_json::to_vec(self).map_err(Error::failed)?;
        Ok(Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The version that requests name.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref().filter(|_| self.is_pinned)
    }

    /// The digest of the model, if its version is one: Outrigger's front gives digests as versions.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.version.as_ref()?.parse().ok()
    }

    /// The rows of all files.
    pub(crate) fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// The columns of the files that are read: the keys, and those of all inputs.
    pub(crate) fn columns(&self) -> Vec<&str> {
        let inputs = self.inputs.iter().flat_map(|input| &input.columns);
        let mut columns: Vec<_> = self.keys.iter().chain(inputs).map(String::as_str).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The number of chunks.
    pub(crate) fn chunks(&self) -> u64 {
        self.files.iter().map(|file| file.rows.div_ceil(self.chunk_rows)).sum()
    }

    /// All chunks, in order.
    pub(crate) fn all_chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        let size = self.chunk_rows;
        let of_file = move |(file, input): (usize, &InputFile)| {
            let rows = input.rows;
            let starts = (0..rows.div_ceil(size)).map(move |chunk| chunk * size);
            starts.map(move |start| (file, start..rows.min(start.saturating_add(size))))
        };
        let all = self.files.iter().enumerate().flat_map(of_file).zip(0..);
        all.map(|((file, rows), number)| Chunk { number, file, rows })
    }

    /// The rows of these commits, which are in the order of their chunks.
    pub(crate) fn rows_of<'a>(
        &'a self,
        commits: impl Iterator<Item = &'a Commit> + 'a,
    ) -> impl Iterator<Item = Chunk> + 'a {
        let mut chunks = self.all_chunks().peekable();
        commits.filter_map(move |commit| {
            while chunks.next_if(|chunk| chunk.number < commit.chunk).is_some() {}
            let chunk = chunks.peek().filter(|chunk| chunk.number == commit.chunk)?;
            let start = chunk.rows.start + commit.start;
            Some(Chunk { rows: start..start + commit.rows, ..chunk.clone() })
        })
    }

    /// The key of the first setting of a job that would give other rows than this plan. What the
    /// job leaves out is that of the plan.
    fn difference(&self, job: &Job, files: &[InputFile]) -> Option<&'static str> {
        let version = &job.model.version;
        let is_input = |(name, source): (&String, &Source)| {
            let input = self.inputs.iter().find(|input| input.name == *name);
            input.is_some_and(|input| {
                let is_named = source.columns.is_empty() && input.columns == [name.as_str()];
                let has_type = source.datatype.is_none_or(|datatype| datatype == input.datatype);
                let has_shape = source.shape.as_ref().is_none_or(|shape| *shape == input.row);
                (is_named || source.columns == input.columns) && has_type && has_shape
            })
        };
        let is_output = |output: &OutputColumn| {
            job.outputs.get(&output.column).is_some_and(|stated| output.is_as(stated))
        };
        let has_outputs = job.outputs.len() == self.outputs.len();
        let is_type = |(name, of): (&String, &ColumnType)| {
            self.types.iter().any(|it| it.name == *name && *it == of.column(name))
        };
        let has_files = self.files.len() == files.len()
            && self.files.iter().zip(files).all(|(planned, file)| planned.is_same(file));
        let differences = [
            ("input", !has_files),
            ("format", job.format.is_some_and(|format| format != self.format)),
            ("output_format", job.output_format.is_some_and(|it| it != self.output_format)),
            ("protocol", self.protocol != job.protocol),
            ("model", self.model != job.model.name),
            ("model version", version.is_some() && ![&self.version, &self.tag].contains(&version)),
            ("model's row_by_row", self.row_by_row != job.model.row_by_row),
            ("inputs", !job.inputs.iter().all(is_input)),
            ("columns", !job.columns.iter().all(is_type)),
            ("keys", job.keys.as_ref().is_some_and(|keys| *keys != self.keys)),
            (
                "outputs",
                !(job.outputs.is_empty() || has_outputs && self.outputs.iter().all(is_output)),
            ),
            ("chunk_rows", job.chunk_rows.is_some_and(|rows| rows != self.chunk_rows)),
        ];
        differences.into_iter().find(|(_, differs)| *differs).map(|(key, _)| key)
    }
}

impl Plan {
    /// A new plan.
    pub(crate) fn new(scoring: Scoring, answer_bytes: u64) -> Result<Self, Error> {
        Ok(Self {
            format: FORMAT,
            job: format!("{:016x}", rand::random::<u64>()),
            created: crate::time::now(),
            fingerprint: scoring.fingerprint()?,
            scoring,
            row_bytes: 0,
            answer_bytes,
            reference: None,
            memory: job::default_memory(),
            suspects: Vec::new(),
            remarks: Vec::new(),
        })
    }

    /// Reads the plan of the job in a store; `None` if there is no job.
    ///
    /// # Errors
    /// It cannot be read, another version wrote it, or its rows cannot be divided.
    pub(crate) fn read(store: &Store) -> Result<Option<Self>, Error> {
        let invalid = |problem: &str| Err(Error::failed(format!("{PLAN}: {problem}")));
        let Some(value) = commit::read::<serde_json::Value>(store, PLAN)? else { return Ok(None) };
        if value["format"] != FORMAT {
            return invalid("another version of Outrigger wrote it");
        }
        let plan: Self = serde_json::from_value(value)
            .map_err(|error| Error::failed(format!("{PLAN}: {error}")))?;
        if plan.scoring.fingerprint()? != plan.fingerprint {
            return invalid("it was changed: its fingerprint is another");
        }
        // The fingerprint proves nothing: any program can make one.
        let rows = plan.scoring.files.iter().try_fold(0_u64, |sum, it| sum.checked_add(it.rows));
        match (plan.scoring.chunk_rows, rows) {
            (0, _) => invalid("chunk_rows must be at least 1"),
            (_, None) => invalid("its files have more than 2^64 rows"),
            _ => Ok(Some(plan)),
        }
    }

    /// Writes the plan unless the store has one. Returns the one that counts, with the suspects of
    /// both.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn write(self, store: &Store) -> Result<Self, Error> {
        let json = commit::json(&self)?;
        let is_new = store.create(PLAN, &json).map_err(|error| Error::store(PLAN, &error))?;
        if is_new {
            return Ok(self);
        }
        let first = Self::read(store)?.ok_or_else(|| Error::failed("the plan was removed"))?;
        Ok(Self { suspects: merged(first.suspects, self.suspects), ..first })
    }

    /// Checks that this is the plan of a job with these settings and files.
    ///
    /// # Errors
    /// A setting is another, or a file has changed.
    pub(crate) fn check(&self, job: &Job, files: &[InputFile]) -> Result<(), Error> {
        match self.scoring.difference(job, files) {
            None => Ok(()),
            Some(key) => {
                let output = job.output.display();
                Err(Error::usage(format!(
                    "{output} has a job with another {key}: choose another output, or run the job \
                     as it was"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use outrigger_oip::DataType;

    use super::*;

    fn scoring(rows: &[u64], chunk_rows: u64) -> Scoring {
        let file = |rows: &u64| InputFile {
            path: "a".into(),
            size: 1,
            modified: 2,
            tag: None,
            rows: *rows,
            picked: Default::default(),
            index: None,
        };
        Scoring {
            files: rows.iter().map(file).collect(),
            format: Format::Parquet,
            types: Vec::new(),
            protocol: Protocol::default(),
            model: "m".to_owned(),
            version: None,
            tag: None,
            is_pinned: false,
            row_by_row: false,
            inputs: Vec::new(),
            keys: vec!["id".to_owned()],
            outputs: Vec::new(),
            chunk_rows,
            output_format: Format::Parquet,
        }
    }

    #[test]
    fn chunks_are_ranges_of_one_file_and_have_all_rows() {
        let scoring = scoring(&[5, 0, 4, 1], 2);
        let chunks: Vec<_> = scoring.all_chunks().collect();
        let ranges: Vec<_> = chunks.iter().map(|chunk| (chunk.file, chunk.rows.clone())).collect();
        assert_eq!(ranges, [(0, 0..2), (0, 2..4), (0, 4..5), (2, 0..2), (2, 2..4), (3, 0..1)]);
        assert_eq!(chunks.len() as u64, scoring.chunks());
        assert_eq!(chunks.iter().map(Chunk::count).sum::<u64>(), scoring.rows());
        assert!(chunks.iter().zip(0..).all(|(chunk, number)| chunk.number == number));
    }

    #[test]
    fn the_first_plan_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        assert_eq!(Plan::read(&store), Ok(None));
        let first = Plan::new(scoring(&[5], 2), 8).expect("a plan");
        let first = first.write(&store).expect("written");
        let second = Plan::new(scoring(&[6], 2), 9).expect("a plan").write(&store);
        assert_eq!(second, Ok(first.clone()));
        assert_eq!(Plan::read(&store), Ok(Some(first)));
    }

    #[test]
    fn another_job_is_refused() {
        let mut scoring = scoring(&[5], 2);
        let input = |name: &str, column: &str| InputTensor {
            name: name.to_owned(),
            datatype: DataType::Fp32,
            row: Vec::new(),
            columns: vec![column.to_owned()],
            is_optional: false,
        };
        let x = InputTensor { row: vec![2], ..input("x", "x") };
        scoring.inputs = vec![x, input("y", "b")];
        scoring.outputs = vec![OutputColumn {
            column: "score".to_owned(),
            tensor: "S".to_owned(),
            datatype: DataType::Fp32,
            depth: 0,
            sizes: Vec::new(),
            is_json: false,
        }];
        let files = scoring.files.clone();
        let plan = Plan::new(scoring, 8).expect("a plan");
        let job = |lines: &str| {
            let text = format!("input: a\noutput: o\nmodel: m\nhosts: h\n{lines}\n");
            Job::read(&text).expect("a job")
        };
        for same in [
            "batch_size: 7",
            "inputs: {y: b}",
            "inputs: {x: x}",
            "inputs: {x: {datatype: FP32, shape: [2]}}",
            "keys: [id]",
            "outputs: {score: S}",
            "chunk_rows: 2",
            "output_format: parquet",
            "ca: other.pem",
            "timeout: 2h",
            "memory: 1GiB",
            "max_errors: 7",
            "compact: large",
        ] {
            assert_eq!(plan.check(&job(same), &files), Ok(()), "{same}");
        }
        for (other, key) in [
            ("inputs: {x: a}", "another inputs"),
            ("inputs: {z: a}", "another inputs"),
            ("inputs: {x: {datatype: FP64}}", "another inputs"),
            ("inputs: {x: {shape: [3]}}", "another inputs"),
            ("inputs: {x: {shape: [2, 1]}}", "another inputs"),
            ("keys: []", "another keys"),
            ("outputs: {s: S}", "another outputs"),
            ("chunk_rows: 3", "another chunk_rows"),
            ("format: csv", "another format"),
            ("output_format: jsonl", "another output_format"),
            ("columns: {x: FP32}", "another columns"),
        ] {
            let refused = plan.check(&job(other), &files);
            assert!(matches!(&refused, Err(Error::Usage(it)) if it.contains(key)), "{refused:?}");
        }
        let mut changed = files;
        changed[0].modified += 1;
        let refused = plan.check(&job(""), &changed);
        assert!(matches!(refused, Err(Error::Usage(message)) if message.contains("another input")));
    }

    #[test]
    fn a_plan_that_was_changed_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        Plan::new(scoring(&[5], 2), 8).expect("a plan").write(&store).expect("written");
        let path = directory.path().join(PLAN);
        let text = std::fs::read_to_string(&path).expect("a plan");
        std::fs::write(&path, text.replace("\"rows\": 5", "\"rows\": 7")).expect("written");
        assert!(Plan::read(&store).is_err());
        std::fs::write(&path, text.replace("\"format\": 2", "\"format\": 1")).expect("written");
        assert!(Plan::read(&store).is_err());
        for (rows, chunk_rows, problem) in
            [(5, 0, "chunk_rows must be at least 1"), (u64::MAX, 2, "more than 2^64 rows")]
        {
            let plan = Plan::new(scoring(&[rows, 1], chunk_rows), 8).expect("a plan");
            store.replace(PLAN, &commit::json(&plan).expect("JSON")).expect("written");
            let refused = Plan::read(&store).expect_err(problem).to_string();
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
