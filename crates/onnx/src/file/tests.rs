//! Files are encoded by hand, as no library of ours writes them.

use std::{fs, io::Cursor};

use outrigger_core::{DType, ElementType, Shape};
use outrigger_proto::raw::write::{put_bytes, put_int};

use super::*;

/// A message under construction.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn bytes(mut self, field: u32, bytes: impl AsRef<[u8]>) -> Self {
        put_bytes(field, bytes.as_ref(), &mut self.0);
        self
    }

    fn number(mut self, field: u32, number: u64) -> Self {
        put_int(field, number, &mut self.0);
        self
    }
}

fn message() -> Message {
    Message::default()
}

/// An input or output; a size of `None` is a name.
fn port(name: &str, element: u64, sizes: &[Option<u64>]) -> Vec<u8> {
    let dimension = |size: &Option<u64>| match size {
        Some(size) => message().number(1, *size).0,
        None => message().bytes(2, "batch").0,
    };
    let shape = sizes.iter().fold(message(), |it, size| it.bytes(1, dimension(size)));
    let tensor = message().number(1, element).bytes(2, shape.0);
    message().bytes(1, name).bytes(2, message().bytes(1, tensor.0).0).0
}

fn model(graph: Message) -> Message {
    message().number(1, 8).bytes(2, "test").bytes(7, graph.0)
}

fn found(model: Message) -> Result<(Interface, Found), OnnxError> {
    read_from(Cursor::new(model.0))
}

/// A tensor whose elements are in the file at `location`.
fn external(location: &str) -> Vec<u8> {
    placed(&[("offset", "0"), ("location", location)])
}

fn placed(entries: &[(&str, &str)]) -> Vec<u8> {
    let entry = |key: &str, value: &str| message().bytes(1, key).bytes(2, value).0;
    let tensor = message().bytes(8, "w");
    entries.iter().fold(tensor, |tensor, (key, value)| tensor.bytes(13, entry(key, value))).0
}

#[test]
fn the_interface_has_the_inputs_that_are_no_weights() {
    let weights = message().number(1, 3).number(2, 1).bytes(8, "w").bytes(9, [0; 12]);
    let graph = message()
        .bytes(1, message().bytes(4, "MatMul").0)
        .bytes(5, weights.0)
        .bytes(11, port("x", 1, &[None, Some(3)]))
        .bytes(11, port("w", 1, &[Some(3)]))
        .bytes(11, port("ids", 7, &[None]))
        .bytes(12, port("y", 11, &[None]))
        .bytes(12, port("half", 10, &[]))
        .bytes(12, port("complex", 14, &[]));
    let (interface, _) = found(model(graph)).expect("a model");
    let names: Vec<_> = interface.inputs.iter().map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["ids", "x"]);
    let input = interface.input("x").expect("an input");
    assert_eq!(input.dtype, DType::Float32.into());
    assert_eq!(input.shape, Shape::Sizes(vec![None, Some(3)]));
    assert_eq!(interface.output("y").expect("an output").dtype, DType::Float64.into());
    assert_eq!(interface.output("half").expect("an output").dtype, DType::Float16.into());
    let complex = ElementType::Unsupported("complex64".into());
    assert_eq!(interface.output("complex").expect("an output").dtype, complex);
}

#[test]
fn an_output_of_one_row_has_as_many_as_the_input() {
    let declared = |input: &[Option<u64>], output: &[Option<u64>]| {
        let graph = message().bytes(11, port("x", 1, input)).bytes(12, port("y", 1, output));
        let (interface, _) = found(model(graph)).expect("a model");
        interface.output("y").expect("an output").shape.to_string()
    };
    let any = [None, Some(3)];
    assert_eq!(declared(&any, &[Some(1)]), "[?]");
    assert_eq!(declared(&any, &[Some(1), Some(2)]), "[?, 2]");
    assert_eq!(declared(&any, &[Some(2), Some(1)]), "[2, 1]");
    assert_eq!(declared(&any, &[]), "[]");
    assert_eq!(declared(&[Some(1), Some(3)], &[Some(1)]), "[1]", "one row is all it takes");
}

#[test]
fn files_of_weights_are_found_wherever_a_tensor_is() {
    let tensor = external("w.bin");
    let sparse = message().bytes(1, &tensor).0;
    let inner = message().bytes(5, &tensor).0;
    let attributes: [(u32, &[u8]); 6] =
        [(5, &tensor), (10, &tensor), (22, &sparse), (23, &sparse), (6, &inner), (11, &inner)];
    let attributes =
        attributes.map(|(field, value)| message().bytes(1, "value").bytes(field, value).0);
    let node = |attribute: &Vec<u8>| message().bytes(5, attribute).0;
    let mut models = vec![model(message().bytes(5, &tensor)), model(message().bytes(15, &sparse))];
    for attribute in &attributes {
        let empty = || model(message());
        models.push(model(message().bytes(1, node(attribute))));
        // The nodes of a function, and the defaults of its attributes.
        models.push(empty().bytes(25, message().bytes(7, node(attribute)).0));
        models.push(empty().bytes(25, message().bytes(11, attribute).0));
        for graph in [1, 2] {
            let training = message().bytes(graph, message().bytes(1, node(attribute)).0);
            models.push(empty().bytes(20, training.0));
        }
    }
    for model in models {
        let (_, found) = found(model).expect("a model");
        assert_eq!(found.external, BTreeMap::from([("w.bin".into(), (0, "w".into()))]));
    }
}

#[test]
fn weights_outside_of_the_package_are_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let package = root.path().join("package");
    fs::create_dir_all(package.join("inner")).expect("a directory");
    fs::create_dir_all(package.join("*/_ORT_MEM_ADDR_")).expect("a directory");
    for file in ["outside", "package/w", "package/inner/w", "package/*/_ORT_MEM_ADDR_/*"] {
        fs::write(root.path().join(file), "").expect("a file");
    }
    std::os::unix::fs::symlink(root.path().join("outside"), package.join("link")).expect("a link");
    let outside = root.path().join("outside").display().to_string();
    for (location, is_allowed) in [
        ("w", true),
        ("inner/w", true),
        ("./w", true),
        ("./inner//./w", true),
        (".", false),
        ("./../outside", false),
        ("../outside", false),
        ("inner/../w", false),
        (outside.as_str(), false),
        ("link", false),
        ("*/_ORT_MEM_ADDR_/*", false),
        ("inner", false),
        ("missing", false),
        ("", false),
    ] {
        let model = model(message().bytes(5, external(location)));
        fs::write(package.join(FILE), model.0).expect("a file");
        assert_eq!(read(&package).is_ok(), is_allowed, "{location}");
    }
}

#[test]
fn weights_beyond_the_end_of_their_file_are_refused() {
    let package = tempfile::tempdir().expect("a directory");
    fs::write(package.path().join("w"), [0; 8]).expect("a file");
    for (place, is_allowed) in [
        (&[("length", "8")][..], true),
        (&[("offset", "4"), ("length", "4")], true),
        (&[("length", "9")], false),
        (&[("offset", "5"), ("length", "4")], false),
        (&[("offset", "9")], false),
        (&[("offset", "-1"), ("length", "4")], false),
        (&[("offset", "18446744073709551615"), ("length", "1")], false),
        (&[("offset", "one")], false),
        (&[("length", "8.0")], false),
    ] {
        let entries = [place, &[("location", "w")]].concat();
        // Another tensor in the file changes nothing.
        let graph = message().bytes(5, placed(&entries)).bytes(5, external("w"));
        fs::write(package.path().join(FILE), model(graph).0).expect("a file");
        assert_eq!(read(package.path()).is_ok(), is_allowed, "{place:?}");
    }
}

#[test]
fn weights_whose_length_is_not_that_of_their_shape_are_refused() {
    let package = tempfile::tempdir().expect("a directory");
    fs::write(package.path().join("w.bin"), [0; 24]).expect("a file");
    let checked = |element: u64, length: &[(&str, &str)], sizes: Message| {
        let mut tensor = sizes.number(2, element);
        tensor.0.extend(placed(&[&[("location", "w.bin")], length].concat()));
        let model = model(message().bytes(5, tensor.0).bytes(5, external("w.bin")));
        fs::write(package.path().join(FILE), model.0).expect("a file");
        read(package.path()).map(drop)
    };
    let sizes = || message().number(1, 2).number(1, 3);
    let packed = || message().bytes(1, [2, 3]);
    let length = |text| [("length", text)];
    for sizes in [sizes, packed] {
        assert!(checked(1, &length("24"), sizes()).is_ok());
        assert!(checked(1, &[], sizes()).is_ok());
        assert!(checked(1, &length("0"), sizes()).is_ok(), "ONNX Runtime takes it for none");
        assert!(checked(20, &length("3"), sizes()).is_ok(), "a type that Outrigger does not know");
        let said = |error: Result<(), OnnxError>| error.expect_err("wrong").to_string();
        let error = said(checked(1, &length("20"), sizes()));
        assert!(error.contains("\"w\" in \"w.bin\" with the length 20"), "{error}");
        for beyond in [checked(11, &[], sizes()), checked(1, &[("offset", "4")], sizes())] {
            let error = said(beyond);
            assert!(error.contains("\"w\" in \"w.bin\" beyond the end"), "{error}");
        }
    }
    let endless = message().number(1, u64::MAX).number(1, 2);
    assert!(checked(1, &[], endless).is_err());
}

#[test]
fn operators_that_are_not_built_in_are_refused() {
    let node = |domain: &str| message().bytes(4, "Custom").bytes(7, domain).0;
    let check = |model: Message| found(model).expect("a model").1.check(Path::new("/none"));
    for domain in ["", "ai.onnx.ml", "com.microsoft"] {
        assert!(check(model(message().bytes(1, node(domain)))).is_ok(), "{domain}");
    }
    let custom = model(message().bytes(1, node("acme")));
    let error = check(custom.clone()).expect_err("it is not built in").to_string();
    assert!(error.contains("\"acme\""), "{error}");
    let function = message().bytes(1, "Custom").bytes(10, "acme");
    assert!(check(custom.clone().bytes(25, &function.0)).is_ok(), "the model defines it");
    let function = function.bytes(7, node("other"));
    assert!(check(custom.bytes(25, function.0)).is_err(), "the function needs another one");
}

#[test]
fn graphs_that_are_nested_without_end_are_refused() {
    let nested = |graph: Message| {
        let attribute = message().bytes(6, graph.0);
        message().bytes(1, message().bytes(5, attribute.0).0)
    };
    let depths = [31, 33].map(|depth| (0..depth).fold(message(), |graph, _| nested(graph)));
    let [shallow, deep] = depths.map(|graph| found(model(graph)).is_ok());
    assert_eq!((shallow, deep), (true, false));
}

#[test]
fn files_that_are_no_models_are_refused() {
    assert!(matches!(found(message().number(1, 8)), Err(OnnxError::NoGraph)));
    assert!(matches!(found(Message(vec![0x3a, 0xff])), Err(OnnxError::Unreadable(_))));
    let many = (0..100_000).fold(message(), |graph, _| graph.bytes(11, port("name", 1, &[])));
    let error = found(model(many)).map(drop).expect_err("it is too large").to_string();
    assert!(error.contains("more than"), "{error}");
}

#[test]
fn a_damaged_file_causes_no_panic() {
    let node = message().bytes(4, "If").bytes(7, "ai.onnx.ml");
    let branch = message().bytes(5, external("w")).bytes(1, &node.0);
    let graph = message()
        .bytes(1, node.bytes(5, message().bytes(6, branch.0).0).0)
        .bytes(11, port("x", 1, &[None, Some(3)]))
        .bytes(12, port("y", 11, &[None]));
    let whole = model(graph).bytes(25, message().bytes(10, "own").0).0;
    assert!(read_from(Cursor::new(whole.clone())).is_ok());
    for at in 0..whole.len() {
        read_from(Cursor::new(&whole[..at])).ok();
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            read_from(Cursor::new(flipped)).ok();
        }
    }
}
