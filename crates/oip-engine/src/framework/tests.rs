use super::*;

fn package(text: &str, directories: &[&str]) -> Result<Package, Failure> {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join(FILE), text).expect("written");
    for name in directories {
        fs::create_dir_all(directory.path().join(MODELS).join(name)).expect("a directory");
    }
    Package::read(directory.path())
}

const PLAIN: &str = r#"{"remote": {"model": "m"}, "inputs": [], "outputs": []}"#;

#[test]
fn a_package_names_the_model_and_its_tensors() {
    let text = r#"{"schema": "s", "framework": "oip", "remote": {"model": "m", "version": "3"},
        "inputs": [{"tensor": "ids", "dtype": "int64", "lengths": "n", "weights": "w"}],
        "outputs": [{"tensor": "y", "name": "score"}]}"#;
    let package = package(text, &[]).expect("valid");
    let remote = Remote { model: "m".into(), version: Some("3".into()), row_by_row: false };
    assert_eq!((&package.remote, package.carried.len()), (&remote, 0));
    let interface = package.interface();
    let inputs: Vec<_> = interface.inputs.iter().map(|it| (&*it.name, &it.dtype)).collect();
    let known = ElementType::Known;
    let (ids, float) = (known(DType::Int64), known(DType::Float32));
    assert_eq!(inputs, [("ids", &ids), ("n", &ids), ("w", &float)]);
    assert!(interface.output("y").is_some());
}

#[test]
fn requirements_of_the_package_and_of_what_it_carries_are_remarked() {
    let directory = tempfile::tempdir().expect("a directory");
    let write =
        |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
    write(FILE, PLAIN);
    fs::create_dir_all(directory.path().join("oip/m")).expect("a directory");
    assert_eq!(requirements::remark(directory.path()), None);
    write("requirements.txt", "# of training\nscikit-learn==1.3.2  # as trained\n\n");
    write("oip/m/requirements.txt", "numpy>=1.26\n");
    let remark = requirements::remark(directory.path()).expect("a remark");
    assert!(remark.contains("names scikit-learn==1.3.2, numpy>=1.26: "), "{remark}");
}

#[test]
fn a_package_without_a_model_is_refused() {
    for remote in ["", r#""remote": {},"#, r#""remote": {"model": "m", "url": "http://x"},"#] {
        let refused = package(&format!(r#"{{{remote} "inputs": [], "outputs": []}}"#), &[]);
        assert_eq!(refused.map_err(|it| it.reason), Err(Reason::ImageInvalid), "{remote}");
    }
    let signature = interface(&PackagedModel::from(Path::new("/")), "other").expect_err("refused");
    assert_eq!(signature.reason, Reason::ImageInvalid);
}

#[test]
fn the_model_that_is_run_is_loaded_last() {
    let package = package(PLAIN, &["z", "m", "a_1.b"]).expect("valid");
    assert_eq!(package.carried, ["a_1.b", "z", "m"].map(Arc::from));
}

#[test]
fn names_of_carried_models_are_plain() {
    let long = "a".repeat(LONGEST + 1);
    for (directories, part) in [
        (&["other"][..], "no directory oip/m"),
        (&[][..], "no directory oip/m"),
        (&["m", ".hidden"], "begin with a '.'"),
        (&["m", "a b"], "begin with a '.'"),
        (&["m", &long], "begin with a '.'"),
    ] {
        let directories: Vec<_> = directories.iter().copied().chain([""]).collect();
        let failure = package(PLAIN, &directories).expect_err("refused");
        assert_eq!(failure.reason, Reason::ImageInvalid);
        assert!(failure.message.contains(part), "{directories:?}: {}", failure.message);
    }
}
