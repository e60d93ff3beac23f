use super::*;

const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn index(entries: &str) -> OciImageIndex {
    let text = format!(r#"{{"schemaVersion": 2, "manifests": [{entries}]}}"#);
    match parse("index", text.as_bytes(), None).unwrap() {
        Manifest::Index(index) => index,
        Manifest::Image(_) => panic!("not an index"),
    }
}

fn entry(digest: &str, os: &str, architecture: &str) -> String {
    format!(
        r#"{{"mediaType": "{OCI_IMAGE_MEDIA_TYPE}", "digest": "{digest}", "size": 7,
            "platform": {{"os": "{os}", "architecture": "{architecture}"}}}}"#
    )
}

fn arm() -> Platform {
    Platform { os: "linux".into(), architecture: "arm64".into(), variants: vec!["v8".into()] }
}

fn chosen(entries: &[String], platform: &Platform) -> String {
    match choose("x", &index(&entries.join(",")), platform).expect("an image") {
        Choice::Image(entry) => entry.digest.to_string(),
        Choice::Among(_) => panic!("not known by its entry"),
    }
}

#[test]
fn a_manifest_that_is_nested_too_deeply_is_refused() {
    for place in ["layers", "annotations", "other"] {
        let deep = format!(r#"{{"schemaVersion": 2, "{place}": {}"#, "[".repeat(100_000));
        assert!(parse("x", deep.as_bytes(), None).is_err(), "{place}");
    }
}

#[test]
fn the_platforms_image_is_chosen_from_an_index() {
    let both = [entry(A, "linux", "amd64"), entry(B, "linux", "arm64")];
    assert_eq!(chosen(&both, &arm()), B);
}

#[test]
fn the_variant_that_this_machine_runs_is_chosen_in_any_order() {
    let of = |digest: &str, variant: &str| {
        let plain = entry(digest, "linux", "amd64");
        plain.replace("\"amd64\"", &format!("\"amd64\", \"variant\": \"{variant}\""))
    };
    let levels = |highest: usize| Platform {
        os: "linux".into(),
        architecture: "amd64".into(),
        variants: ["v1", "v3", "v2"].into_iter().take(highest).map(Into::into).collect(),
    };
    for (one, other, highest) in [
        (entry(A, "linux", "amd64"), of(B, "v3"), 3),
        (entry(A, "linux", "amd64"), of(B, "v3"), 1),
        (of(A, "v1"), of(B, "v2"), 3),
        (of(A, ""), of(B, "v1"), 3),
        (of(A, "v3"), of(B, "v2"), 3),
        (of(A, "v3"), of(B, "v4"), 3),
    ] {
        let platform = levels(highest);
        assert_eq!(chosen(&[one.clone(), other.clone()], &platform), A, "{one} {other}");
        assert_eq!(chosen(&[other.clone(), one.clone()], &platform), A, "{other} {one}");
    }
    let two = index(&[of(A, "v3"), of(B, "v4")].join(","));
    let error = choose("x", &two, &levels(1)).unwrap_err().to_string();
    assert!(error.contains("linux/amd64/v3, linux/amd64/v4"), "{error}");
    assert_eq!(
        Platform::default().variants.first().map(String::as_str),
        match std::env::consts::ARCH {
            "x86_64" => Some("v1"),
            "aarch64" => Some("v8"),
            _ => None,
        }
    );
}

#[test]
fn an_artifact_beside_an_image_is_not_chosen() {
    let artifact = |text: String| text.replace("\"size\"", "\"artifactType\": \"x/y\", \"size\"");
    let soci = artifact(entry(B, "linux", "arm64"));
    assert_eq!(chosen(&[soci.clone(), entry(A, "linux", "arm64")], &arm()), A);
    assert_eq!(chosen(&[entry(A, "windows", "x"), soci.clone()], &arm()), A);
    assert_eq!(chosen(&[entry(B, "unknown", "unknown"), entry(A, "windows", "x")], &arm()), A);
    assert_eq!(chosen(&[soci], &arm()), B, "nothing else is there");
}

#[test]
fn the_only_image_of_an_index_is_chosen_for_any_platform() {
    let attestation = format!(
        r#"{{"mediaType": "{OCI_IMAGE_MEDIA_TYPE}", "digest": "{B}", "size": 7,
            "annotations": {{"vnd.docker.reference.type": "attestation-manifest"}},
            "platform": {{"os": "unknown", "architecture": "unknown"}}}}"#
    );
    assert_eq!(chosen(&[entry(A, "windows", "x"), attestation], &arm()), A);
}

#[test]
fn the_error_lists_the_platforms_of_the_index() {
    let two = index(&[entry(A, "linux", "amd64"), entry(B, "windows", "arm64")].join(","));
    let error = choose("x", &two, &arm()).unwrap_err().to_string();
    assert!(error.contains("linux/arm64") && error.contains("windows/arm64"), "{error}");
    assert!(choose("x", &index(""), &arm()).unwrap_err().to_string().contains("none"));
}

fn image(layers: &str) -> Result<Vec<Layer>, Error> {
    let text = format!(
        r#"{{"schemaVersion": 2, "config": {{"mediaType": "c", "digest": "{A}", "size": 2}},
            "layers": [{layers}]}}"#
    );
    match parse("image", text.as_bytes(), None)? {
        Manifest::Image(image) => layers_of(&image),
        Manifest::Index(_) => panic!("not an image"),
    }
}

fn layers_of(image: &OciImageManifest) -> Result<Vec<Layer>, Error> {
    layers("image", image)
}

#[test]
fn layers_of_both_families_are_known() {
    for (media_type, kind) in [
        ("application/vnd.oci.image.layer.v1.tar", LayerKind::Tar),
        ("application/vnd.oci.image.layer.v1.tar+gzip", LayerKind::TarGzip),
        ("application/vnd.oci.image.layer.v1.tar+zstd", LayerKind::TarZstd),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", LayerKind::TarGzip),
    ] {
        let text = format!(r#"{{"mediaType": "{media_type}", "digest": "{B}", "size": 9}}"#);
        let [layer] = image(&text).unwrap().try_into().unwrap();
        assert_eq!((layer.kind, layer.size, layer.digest.to_string()), (kind, 9, B.to_owned()));
    }
}

#[test]
fn invalid_layers_are_refused() {
    for (media_type, digest, size, part) in [
        ("application/vnd.wasm.content.layer.v1+wasm", B, 9, "no tar archive"),
        ("application/vnd.oci.image.layer.v1.tar", "sha512:00", 9, "sha256"),
        ("application/vnd.oci.image.layer.v1.tar", "../../etc/passwd", 9, "sha256"),
        ("application/vnd.oci.image.layer.v1.tar", B, -1, "-1 bytes"),
    ] {
        let text =
            format!(r#"{{"mediaType": "{media_type}", "digest": "{digest}", "size": {size}}}"#);
        let error = image(&text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_document_that_is_no_manifest_is_refused() {
    for text in [
        "",
        "[]",
        "{}",
        r#"{"schemaVersion": 1, "layers": []}"#,
        r#"{"schemaVersion": 2}"#,
        r#"{"schemaVersion": 2, "layers": [], "manifests": []}"#,
        r#"{"schemaVersion": 2, "layers": [1]}"#,
        r#"{"schemaVersion": 2, "manifests": 1}"#,
    ] {
        let error = parse("registry.example/x", text.as_bytes(), None).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{text}: {error:?}");
    }
}

#[test]
fn labels_are_optional() {
    let labels = |text: &str| labels("x", text.as_bytes());
    assert!(labels("{}").unwrap().is_empty());
    assert!(labels(r#"{"config": {"Labels": null}}"#).unwrap().is_empty());
    let found = labels(r#"{"config": {"Env": [], "Labels": {"a": "b"}}}"#).unwrap();
    assert_eq!(found["a"], "b");
    assert!(labels("no json").is_err());
}
