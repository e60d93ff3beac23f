use super::*;

fn reference(text: &str) -> Reference {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn problem(text: &str) -> String {
    text.parse::<Reference>().expect_err(text).to_string()
}

fn sha256() -> String {
    format!("sha256:{}", "0a".repeat(32))
}

#[test]
fn registry_references_round_trip() {
    let by_digest = format!("registry.example/team/churn@{}", sha256());
    for text in [
        "registry.example/team/churn",
        "registry.example/team/churn:v1.2",
        "localhost/churn:latest",
        "localhost:5000/churn",
        "127.0.0.1:5000/a/b/c:x",
        "docker.io/library/busybox:1",
        "[::1]:5000/m:latest",
        "[::1]/m",
        "[2001:db8::7]:443/team/m:v1",
        &by_digest,
    ] {
        assert_eq!(reference(text).to_string(), text);
    }
    let Repository::Registry { host, path } = reference(&by_digest).repository else {
        panic!("not a registry");
    };
    assert_eq!((host.as_str(), path.as_str()), ("registry.example", "team/churn"));
    assert_eq!(reference(&by_digest).digest().map(|d| d.to_string()), Some(sha256()));
}

#[test]
fn a_host_is_lower_case_and_a_missing_version_means_latest() {
    assert_eq!(reference("Registry.Example/team/churn").to_string(), "registry.example/team/churn");
    assert_eq!(reference("localhost/churn").selected().to_string(), ":latest");
    assert_eq!(reference("localhost/churn").selector(), None);
    assert_eq!(reference("[0:0::1]:05000/churn").to_string(), "[::1]:5000/churn");
}

#[test]
fn of_a_tag_and_a_digest_the_digest_counts() {
    let digest = sha256();
    for name in
        ["registry.example/churn", "localhost:5000/churn", "[::1]/churn", "oci:/models/churn"]
    {
        let by_digest = format!("{name}@{digest}");
        assert_eq!(reference(&format!("{name}:v1@{digest}")), reference(&by_digest));
        assert_eq!(reference(&by_digest).to_string(), by_digest);
    }
}

#[test]
fn hosts_are_those_of_references() {
    for (text, host) in [
        ("localhost:5000", "localhost:5000"),
        ("registry", "registry"),
        ("Registry.Example", "registry.example"),
        ("[::0001]:5000", "[::1]:5000"),
        ("[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    ] {
        assert_eq!(registry_host(text).as_deref(), Ok(host));
    }
    for text in [
        "",
        "http://localhost:5000",
        "localhost:5000/",
        "localhost:5000/team",
        "localhost:",
        "localhost:65536",
        "localhost:http",
        "*.example",
        "::1",
        "[::1",
        "[::1]5000",
        "[fe80::1%eth0]:5000",
        "a b",
        " localhost",
        "user@localhost",
        "localhost:5000,registry",
    ] {
        assert!(registry_host(text).is_err(), "{text:?}");
    }
}

#[test]
fn layout_references_round_trip() {
    let by_digest = format!("oci:/models/churn@{}", sha256());
    for text in [
        "oci:/models/churn",
        "oci:/models/churn:v1",
        "oci:/models/a:b/churn",
        "oci:/models/a:b/churn:v1",
        "oci:/models/a:b:v1",
        "oci:/models/a:b/",
        "oci:/models/a@b/",
        "oci:/models/a@b/:v1",
        &by_digest,
        &format!("oci:/models/a:b/@{}", sha256()),
    ] {
        assert_eq!(reference(text).to_string(), text);
        assert_eq!(reference(&reference(text).to_string()), reference(text));
    }
    let layout = |text: &str| reference(text).repository;
    assert_eq!(layout("oci:/models/a:b:v1"), Repository::Layout("/models/a:b".into()));
    assert_eq!(layout("oci:/models/a:b/"), Repository::Layout("/models/a:b".into()));
    assert_eq!(layout("oci:/models/./x/../churn:v1"), Repository::Layout("/models/churn".into()));
}

#[test]
fn a_relative_layout_is_taken_from_the_working_directory() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        reference("oci:models/churn:v1").repository,
        Repository::Layout(here.join("models/churn"))
    );
}

#[test]
fn docker_hub_short_names_are_refused() {
    for text in ["busybox", "busybox:1", "team/churn", "team/churn:v1"] {
        assert!(problem(text).contains("registry's host"), "{}", problem(text));
    }
}

#[test]
fn the_error_names_the_problem() {
    let two = format!("localhost/churn@{0}@{0}", sha256());
    for (text, part) in [
        ("", "registry's host"),
        ("registry.example", "repository must follow"),
        ("localhost:5000", "repository must follow"),
        ("registry.example/", "repository must follow"),
        ("https://registry.example/churn", "no scheme"),
        ("registry.example/Churn", "lower case"),
        ("registry.example/a//b", "lower case"),
        ("registry.example/../b", "lower case"),
        ("registry.example/churn:", "tag"),
        ("registry.example/churn:a b", "tag"),
        ("registry.example/churn@sha256:12", "64 lower-case"),
        ("registry.example/churn@sha512:12", "sha256:"),
        ("user:secret@registry.example/churn", "character"),
        (&two, "not two"),
        ("::1/churn", "character"),
        ("[::1/churn", "character"),
        ("localhost:65536/churn", "character"),
        ("oci:", "directory must follow"),
        ("oci::v1", "directory must follow"),
        ("oci:/models:", "tag"),
    ] {
        assert!(problem(text).contains(part), "{text}: {}", problem(text));
    }
}

#[test]
fn the_error_shows_the_reference_but_no_login() {
    for (text, shown) in [
        ("h.x/m@sha512:00", "h.x/m@sha512:00"),
        ("h.x/m@sha256:00", "h.x/m@sha256:00"),
        ("user:secret@h.x/m", "***@h.x/m"),
        ("user:secret@h.x/m@sha512:00", "***@h.x/m@sha512:00"),
        ("user:secret@h.x/m@sha256:00", "***@h.x/m@sha256:00"),
    ] {
        let problem = problem(text);
        assert!(problem.starts_with(&format!("{shown:?} is not")), "{problem}");
        assert!(!shown.contains("sha") || problem.contains("\"sha256:\" and 64"), "{problem}");
    }
}

/// Tries every text of up to four of these characters, as a path, as part of a host and as a port.
#[test]
fn the_grammar_is_that_of_other_tools() {
    let mut texts = vec![String::new()];
    for _ in 0..4 {
        let longer = texts
            .iter()
            .flat_map(|text| "aZ7.-_/:".chars().map(move |char| format!("{text}{char}")));
        texts = longer.collect();
        for text in &texts {
            for name in [format!("h.x/{text}"), format!("h.{text}/a"), format!("h.x:{text}/a")] {
                // Texts that end in a tag are skipped: it is cut off before the grammar check. So
                // are upper-case hosts, which we turn into lower case.
                let last = name.rsplit('/').next().unwrap();
                if last.contains(':') || name.contains('Z') && !name.starts_with("h.x/") {
                    continue;
                }
                // Only the second branch of the other parser accepts a host with '_', as part of a
                // path.
                let host = name.split('/').next().unwrap();
                let expected = name.parse::<oci_client::Reference>().is_ok_and(|other| {
                    !host.contains('_')
                        && format!("{}/{}", other.registry(), other.repository()) == name
                });
                assert_eq!(name.parse::<Reference>().is_ok(), expected, "{name}");
            }
        }
    }
}

#[test]
fn a_repository_may_have_255_characters() {
    let name = |length: usize| format!("registry.example/{}", "a".repeat(length));
    assert!(name(255).parse::<Reference>().is_ok());
    assert!(problem(&name(256)).contains("more than 255"));
}

#[test]
fn prefixes_admit_whole_segments_only() {
    let within = |text: &str, prefix: &str| reference(text).is_within(&prefix.parse().unwrap());
    for (text, prefix) in [
        ("registry.example/team/churn:v1", "registry.example/team"),
        ("registry.example/team/churn:v1", "registry.example/team/"),
        ("registry.example/team/churn:v1", "registry.example/team/churn"),
        ("registry.example/team/churn:v1", "registry.example"),
        ("registry.example/team/churn", "Registry.example/team"),
        ("localhost:5000/churn", "localhost:5000"),
        ("oci:/models/churn:v1", "oci:/models"),
        ("oci:/models/churn:v1", "oci:/x/../models/"),
        ("oci:/models/churn:v1", "oci:/models/churn"),
    ] {
        assert!(within(text, prefix), "{text} in {prefix}");
    }
    for (text, prefix) in [
        ("registry.example/team-evil/churn", "registry.example/team"),
        ("registry.example/teams", "registry.example/team"),
        ("registry.example.evil/team/churn", "registry.example"),
        ("registry.example:444/team/churn", "registry.example"),
        ("registry.example/team", "registry.example/team/churn"),
        ("oci:/models-evil/churn", "oci:/models"),
        ("oci:/models/../secret:v1", "oci:/models"),
        ("oci:/models/churn", "registry.example"),
    ] {
        assert!(!within(text, prefix), "{text} not in {prefix}");
    }
}

#[test]
fn prefixes_round_trip_and_invalid_ones_are_refused() {
    for text in ["registry.example", "registry.example/team", "oci:/models"] {
        assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
    }
    for text in ["", "team", "registry.example/Team", "registry.example/*", "oci:"] {
        assert!(text.parse::<Prefix>().is_err(), "{text}");
    }
}

#[test]
fn a_reference_keeps_its_repository_when_the_version_changes() {
    let one = reference("localhost:5000/churn:v1");
    let tag = one.with_tag("v2".parse().unwrap());
    assert_eq!(tag.to_string(), "localhost:5000/churn:v2");
    let digest: Digest = sha256().parse().unwrap();
    assert_eq!(tag.with_digest(digest).to_string(), format!("localhost:5000/churn@{digest}"));
}

#[test]
fn a_password_in_a_reference_is_not_repeated() {
    for text in ["https://ann:s3/cret@registry.example/team", "ann:s3cret@registry.example/team"] {
        let reference = text.parse::<Reference>().unwrap_err();
        let prefix = text.parse::<Prefix>().unwrap_err();
        for shown in [format!("{reference} {reference:?}"), format!("{prefix} {prefix:?}")] {
            assert!(shown.contains("registry.example") && !shown.contains("cret"), "{shown}");
        }
    }
    let digest = format!("{}@sha256:12", "registry.example/team/churn");
    assert!(digest.parse::<Reference>().unwrap_err().to_string().contains(&digest));
}
