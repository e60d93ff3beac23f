use super::*;

fn everything() -> Metadata {
    Metadata::parse(include_bytes!("../../tests/metadata/good/everything.json")).expect("valid")
}

fn feature<'m>(metadata: &'m Metadata, name: &str) -> &'m Feature {
    let mut features = metadata.inputs.iter().flat_map(|input| &input.features);
    features.find(|feature| &*feature.name == name).expect("a feature of this name")
}

#[test]
fn everything_a_file_says_is_read() {
    let metadata = everything();
    assert_eq!(&*metadata.signature, "score");
    assert!(!metadata.deterministic);
    assert_eq!(metadata.inputs[0].width(), 1 + 1 + 3 + 2 + 2);
    assert_eq!(metadata.inputs[6].entity, Entity::Seed);
    assert_eq!(metadata.outputs[2].role, Some(Role::Propensity));
    assert_eq!(metadata.annotations.len(), 1);
    let embedding = Absence::Default(vec![Raw::Integer(0), Raw::Real(0.5), Raw::Real(-0.0)]);
    assert_eq!(feature(&metadata, "embedding").absence, embedding);
    assert_eq!(feature(&metadata, "city").encoding, Encoding::HashBuckets(1 << 31));
    assert_eq!(
        feature(&metadata, "shop").encoding,
        Encoding::Vocabulary {
            words: Words::Integers(vec![10, 20, -30]),
            ids: Vec::new(),
            out_of_vocabulary: Some(0)
        }
    );
    assert!(feature(&metadata, "income").allow_non_finite);
}

#[test]
fn omitted_settings_have_their_defaults() {
    let json = include_bytes!("../../tests/metadata/good/minimal.json");
    let metadata = Metadata::parse(json).expect("valid");
    assert_eq!(&*metadata.signature, "serving_default");
    assert!(metadata.deterministic);
    assert!(metadata.annotations.is_empty());
    // An editor may write a byte order mark.
    assert_eq!(Metadata::parse(&[b"\xef\xbb\xbf", &json[..]].concat()), Ok(metadata));
}

#[test]
fn any_framework_is_read() {
    let json = include_str!("../../tests/metadata/good/everything.json");
    let other = json.replace("\"tensorflow\"", "\"torch\"");
    let metadata = Metadata::parse(other.as_bytes()).expect("valid");
    assert_eq!(&*metadata.framework, "torch");
}

#[test]
fn an_error_names_path_and_problem() {
    let json = r#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow", "inputs": 3}"#;
    let error = Metadata::parse(json.as_bytes()).expect_err("not an array");
    assert_eq!(error.to_string(), "metadata.json: inputs: expected an array, found a number");
    assert_eq!(error.reason(), Reason::ImageInvalid);
    let deep = format!(r#"{{"annotations": {{"a": {}"#, "[".repeat(100_000));
    let error = Metadata::parse(deep.as_bytes()).expect_err("nested too deeply").to_string();
    assert!(error.contains("recursion limit exceeded"), "{error}");
    let error = Metadata::parse(b"{").expect_err("not JSON").to_string();
    assert_eq!(
        error,
        "metadata.json: not valid JSON: EOF while parsing an object at line 1 column 1"
    );
}

#[test]
fn an_input_is_not_wider_than_the_largest_position() {
    let feature = |name: usize| serde_json::json!({"name": name.to_string(), "length": MAX_LENGTH, "required": true});
    let file = |features: usize| {
        let features: Vec<_> = (0..features).map(feature).collect();
        let input = serde_json::json!(
            {"tensor": "x", "entity": "user", "dtype": "float32", "features": features}
        );
        let output = serde_json::json!({"tensor": "y", "name": "y", "kind": "single"});
        let file = serde_json::json!(
            {"schema": SCHEMA, "framework": "tensorflow", "inputs": [input], "outputs": [output]}
        );
        Metadata::parse(file.to_string().as_bytes())
    };
    assert_eq!(file(MAX_WIDTH / MAX_LENGTH).expect("just so").inputs[0].width(), MAX_WIDTH);
    assert_eq!(file(MAX_WIDTH / MAX_LENGTH + 1).expect_err("too wide").path, "inputs[0].features");
}
