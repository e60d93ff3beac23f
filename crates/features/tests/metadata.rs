//! The parser and the published schema agree on the same files.

use std::{collections::BTreeMap, fs, path::PathBuf};

use outrigger_features::Metadata;
use serde_json::Value;

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/metadata").join(name)
}

fn files(name: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory(name)).expect("a directory of examples");
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a plain name");
        (name, fs::read(entry.path()).expect("readable"))
    };
    entries.map(|entry| read(entry.expect("readable"))).collect()
}

fn schema() -> jsonschema::Validator {
    let path = directory("../../../../docs/metadata.schema.json");
    let schema = fs::read(path).expect("the published schema");
    let schema: Value = serde_json::from_slice(&schema).expect("JSON");
    jsonschema::meta::validate(&schema).expect("a valid schema");
    jsonschema::validator_for(&schema).expect("a schema that compiles")
}

/// For each bad file, the path of the error and whether a schema cannot express the rule.
fn expectations() -> BTreeMap<String, (String, bool)> {
    let list = fs::read_to_string(directory("bad.txt")).expect("the list of bad files");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().expect("a file").to_owned();
            let path = words.next().expect("a path").trim_start_matches('-').to_owned();
            (name, (path, words.next() == Some("beyond")))
        })
        .collect()
}

#[test]
fn good_files_pass_parser_and_schema() {
    let schema = schema();
    let files = files("good");
    assert!(files.len() >= 3);
    for (name, json) in files {
        Metadata::parse(&json).unwrap_or_else(|error| panic!("{name}: {error}"));
        let value = serde_json::from_slice(&json).expect("JSON");
        schema.validate(&value).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn bad_files_are_refused_at_the_path_that_is_wrong() {
    let mut expected = expectations();
    for (name, json) in files("bad") {
        let (path, _) = expected.remove(&name).unwrap_or_else(|| panic!("{name} is not listed"));
        let error = Metadata::parse(&json).expect_err(&name);
        assert_eq!(error.path, path, "{name}: {error}");
    }
    assert!(expected.is_empty(), "listed, but not there: {expected:?}");
}

#[test]
fn bad_files_fail_the_schema_unless_it_cannot_express_the_rule() {
    let (schema, expected) = (schema(), expectations());
    for (name, json) in files("bad") {
        let Ok(value) = serde_json::from_slice::<Value>(&json) else { continue };
        let (_, beyond) = expected[&name];
        assert_eq!(schema.is_valid(&value), beyond, "{name}");
    }
}
