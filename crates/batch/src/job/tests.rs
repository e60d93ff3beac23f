use std::{collections::BTreeSet, time::Duration};

use outrigger_oip::DataType;
use outrigger_oip_client::HostConfig;
use serde::{
    Deserializer,
    de::{Error as _, Visitor, value},
    forward_to_deserialize_any,
};

use super::*;

const SHORT: &str = "
input: rows.parquet
output: scored
model: churn
hosts: localhost:8001
";

#[test]
fn a_short_job_has_defaults() {
    let job = Job::read(SHORT).expect("a job");
    let expected = Job::new(
        vec!["rows.parquet".to_owned()],
        "scored",
        "churn",
        vec![Host::new("localhost:8001")],
    );
    assert_eq!(job, expected);
    assert_eq!(job.check(), Ok(()));
}

#[test]
fn every_key_is_read() {
    let text = r#"
input: [a.parquet, "b/*.parquet"]
output: out
model: {name: m, version: "3"}
hosts:
  - one:8001
  - {endpoint: "https://two", prefix: /p, headers: {x-team: a}, token_file: /token, token_header: x-api-key}
ca: ca.pem
inputs:
  x: features
  y: [a, b]
  z: {column: text, datatype: BYTES, shape: [1]}
keys: [id]
format: jsonl
output_format: parquet
columns: {id: INT64, tags: [[BYTES]]}
outputs: {score: SCORE}
batch_size: 32
concurrency: 4
rows_per_second: 500
timeout: 2h
memory: 1GiB
chunk_rows: 1000
max_errors: 1%
listen: "127.0.0.1:9910"
token_file: token
compact: {to: large, file_size: 1GiB}
"#;
    let job = Job::read(text).expect("a job");
    assert_eq!(job.input.0, ["a.parquet", "b/*.parquet"]);
    assert_eq!(job.model.version.as_deref(), Some("3"));
    let headers = vec![("x-team".to_owned(), "a".to_owned())];
    let two = HostConfig {
        endpoint: "https://two".to_owned(),
        prefix: "/p".to_owned(),
        headers,
        token_file: Some("/token".into()),
        token_env: None,
        token_header: Some("x-api-key".to_owned()),
        address: None,
    };
    assert_eq!(job.hosts.0, [Host::new("one:8001"), Host(two)]);
    assert_eq!(job.inputs["x"].columns, ["features"]);
    assert_eq!(job.inputs["y"].columns, ["a", "b"]);
    let z = Source {
        columns: vec!["text".to_owned()],
        datatype: Some(DataType::Bytes),
        shape: Some(vec![1]),
    };
    assert_eq!(job.inputs["z"], z);
    assert_eq!((job.timeout.0, job.memory.0), (Duration::from_secs(7200), 1 << 30));
    assert_eq!((job.chunk_rows, job.max_errors), (Some(1000), Some(MaxErrors::Share(0.01))));
    assert_eq!((job.batch_size, job.concurrency), (32, 4));
    assert_eq!(job.rows_per_second, Some(500));
    assert_eq!(job.outputs["score"], Output::of("SCORE"));
    assert_eq!(job.listen, Some(([127, 0, 0, 1], 9910).into()));
    assert_eq!(job.token_file, Some("token".into()));
    assert_eq!((job.format, job.output_format), (Some(Format::Jsonl), Some(Format::Parquet)));
    let of = |datatype, depth| ColumnType { datatype, depth };
    assert_eq!(job.columns["id"], of(DataType::Int64, 0));
    assert_eq!(job.columns["tags"], of(DataType::Bytes, 2));
    assert_eq!(job.compact, Some(Compaction { to: "large".into(), file_size: Size(1 << 30) }));
    let short = Job::read(&format!("{SHORT}compact: large\n")).expect("a job");
    assert_eq!(short.compact, Some(Compaction { to: "large".into(), file_size: Size(256 << 20) }));
}

/// Fails with the keys of the struct that is read from it, with spaces between them.
struct Keys;

impl<'de> Deserializer<'de> for Keys {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom(fields.join(" ")))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[test]
fn the_page_describes_every_key_and_no_other() {
    let page = include_str!("../../../../docs/batch.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Keys\n"));
    let rows = section.expect("the section").lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let described: BTreeSet<_> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let keys = Job::deserialize(Keys).expect_err("the keys").to_string();
    assert_eq!(described, keys.split(' ').collect());
}

#[test]
fn values_that_are_nested_too_deeply_are_refused() {
    for open in ["[", "{a: ", "- "] {
        let error = Job::read(&format!("{SHORT}hosts:\n  {}", open.repeat(100_000)));
        assert!(error.is_err(), "{open}");
    }
}

#[test]
fn a_model_may_be_a_package() {
    let read = |model: &str| {
        let job = Job::read(&format!("input: a.parquet\noutput: out\nmodel: {model}\n"));
        job.map(|job| (job.model.clone(), job.check()))
    };
    let (model, checked) = read("{package: models/churn/}").expect("a job");
    assert_eq!((model, checked), (Model::packaged(Package::new("models/churn/")), Ok(())));
    let text = r#"{name: m, package: "r.example/churn:1", engine: /bin/server, instances: 3}"#;
    let (model, _) = read(text).expect("a job");
    let package = model.package.expect("a package");
    assert_eq!((&*model.name, &*package.source), ("m", "r.example/churn:1"));
    assert_eq!((package.engine, package.instances.get()), (Some("/bin/server".into()), 3));
    for (model, fault) in [
        ("{version: \"3\"}", "a name or a package"),
        ("{name: m, engine: /bin/server}", "for a package"),
        ("{package: churn, instances: 0}", "nonzero"),
        ("{path: churn}", "path"),
    ] {
        let error = read(model).expect_err(model);
        assert!(matches!(&error, Error::Usage(message) if message.contains(fault)), "{error}");
    }
    let (_, checked) = read("m").expect("a job");
    assert!(matches!(checked, Err(Error::Usage(message)) if message.contains("needs a host")));
    let both = Job::read(&format!(
        "{}hosts: a:1\n",
        SHORT.replace("model: churn\nhosts: localhost:8001", "model: {package: churn}")
    ));
    let refused = both.expect("a job").check();
    assert!(matches!(refused, Err(Error::Usage(message)) if message.contains("must be empty")));
}

#[test]
fn faults_are_refused() {
    for (line, fault) in [
        ("batchsize: 3", "batchsize"),
        ("timeout: soon", "soon"),
        ("max_errors: 101%", "101%"),
        ("inputs: {x: {column: a, columns: [b]}}", "either column or columns"),
        ("inputs: {x: {datatype: FP8}}", "FP8"),
        ("inputs: {x: {colum: a}}", "colum"),
        ("listen: 9910", "socket address"),
        ("format: json", "json"),
        ("columns: {x: INT8}", "INT8"),
        ("columns: {x: [INT64, FP32]}", "a list has one type"),
        ("columns: {x: []}", "a list has one type"),
        (&format!("inputs: {}", "[".repeat(100_000)), ""),
        (&format!("inputs: {}", "{a: ".repeat(100_000)), ""),
    ] {
        let error = Job::read(&format!("{SHORT}{line}\n")).expect_err(line);
        assert!(matches!(&error, Error::Usage(message) if message.contains(fault)), "{error}");
    }
    for (line, fault) in [
        ("batch_size: 0", "batch_size: must be at least 1"),
        ("memory: 1MiB", "memory: must be at least 64MiB"),
        ("timeout: 0s", "timeout: must be longer than 0"),
        ("compact: scored", "compact: needs another directory than output"),
        ("output_format: csv", "output_format: must be parquet or jsonl"),
    ] {
        let job = Job::read(&format!("{SHORT}{line}\n")).expect(line);
        assert_eq!(job.check(), Err(Error::Usage(fault.to_owned())));
    }
}
