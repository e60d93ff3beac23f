//! Tests with hostile images.

use proptest::prelude::*;
use tar::EntryType;

use super::*;
use crate::UnpackLimits;

/// A path outside of the store, where no image may write.
const OUTSIDE: &str = "/tmp";

fn limited(max_bytes: ByteSize, max_entries: u64) -> Fixture {
    Fixture::with(|config| config.limits = UnpackLimits { max_bytes, max_entries })
}

/// Unpacks `hostile` on top of a valid package, expects a refusal that leaves nothing behind, and
/// returns its message.
fn refusal(hostile: &LayerBuilder) -> String {
    let fixture = Fixture::new();
    let error = fixture.unpack_on_package(std::slice::from_ref(hostile)).expect_err("hostile");
    assert_eq!(error.reason(), Reason::ImageInvalid, "{error:?}");
    assert_eq!(fixture.names("trees"), [""; 0], "after {error}");
    assert!(!error.is_transient());
    let layer = hostile.build(LayerKind::Tar).digest.to_string();
    assert!(error.to_string().contains(&layer), "{error} does not name the layer");
    error.to_string()
}

#[test]
fn hostile_entries_are_refused_by_name_and_leave_nothing() {
    use EntryType as T;
    let deep = format!("data/{}x", "d/".repeat(64));
    let long = format!("data/{}", "x".repeat(256));
    let longer = format!("data/{}", "x/".repeat(600));
    let behind = format!("data/l/{}", "d/".repeat(40));
    let file = |name: &str| layer().file(name, b"x");
    let of_type = |kind, name: &str| layer().entry(kind, name, "", b"");
    let cases: Vec<(&str, LayerBuilder)> = vec![
        ("data/../../evil", file("data/../../evil")),
        ("../evil", file("../evil")),
        ("data/..", layer().dir("data/..")),
        ("etc/../x", file("etc/../x")),
        ("/data/../evil", file("/data/../evil")),
        (&deep, file(&deep)),
        (&long[..200], file(&long)),
        (&longer[..200], file(&longer)),
        ("data/out", layer().symlink("data/out", "../../../../etc/passwd")),
        ("data/out", layer().symlink("data/out", "/etc/passwd")),
        ("data/out", layer().symlink("data/out", "/../etc")),
        ("data/out", layer().symlink("data/out", "missing")),
        ("data/out", layer().symlink("data/out", "")),
        ("data/self", layer().symlink("data/self", "self")),
        // Each link is harmless by itself; only both together lead outside.
        (
            "data/b",
            layer().dir("data/d/e").symlink("data/a", "d/e").symlink("data/b", "a/../../../../x"),
        ),
        (
            "data/b",
            layer().dir("data/d").symlink("data/d/a", "..").symlink("data/b", "d/a/a/../.."),
        ),
        // Entries behind a link.
        ("data/l", layer().symlink("data/l", OUTSIDE).file("data/l/x", b"x")),
        ("data/l/x", layer().symlink("data/l", "m").symlink("data/m", "l").file("data/l/x", b"x")),
        ("data/l/x", layer().symlink("data/l", "metadata.json").file("data/l/x", b"x")),
        (&behind, layer().symlink("data/l", &"d/".repeat(40)).dir(&behind)),
        ("data/metadata.json/x", file("data/metadata.json/x")),
        ("data/hard", layer().hard_link("data/hard", "../../etc/passwd")),
        ("data/hard", layer().hard_link("data/hard", "/etc/passwd")),
        ("data/hard", layer().hard_link("data/hard", "/data/../../data/metadata.json")),
        ("data/hard", layer().hard_link("data/hard", &format!("data/{}", "x".repeat(256)))),
        ("data/hard", layer().hard_link("data/hard", "etc/passwd")),
        ("data/hard", layer().hard_link("data/hard", "data/missing")),
        ("data/hard", layer().hard_link("data/hard", "data")),
        ("data/hard", layer().hard_link("data/hard", "data/hard")),
        ("data/hard", layer().hard_link("data/hard", "")),
        ("data/hard", layer().symlink("data/s", "metadata.json").hard_link("data/hard", "data/s")),
        ("data/null", of_type(T::Char, "data/null")),
        ("data/sda", of_type(T::Block, "data/sda")),
        ("data/fifo", of_type(T::Fifo, "data/fifo")),
        ("data/.wh...", file("data/.wh...")),
        ("data/.wh..", file("data/.wh..")),
        ("data/sparse", of_type(T::GNUSparse, "data/sparse")),
        ("data/sparse", layer().pax(&[("GNU.sparse.major", "1")]).file("data/sparse", b"x")),
        ("data/odd", of_type(T::new(b'V'), "data/odd")),
        ("data/real", layer().pax(&[("GNU.sparse.name", "data/real")]).file("etc/x", b"x")),
        ("data/nul", layer().pax(&[("path", "data/nul\0x")]).file("x", b"x")),
        ("../pax", layer().pax(&[("path", "../pax")]).file("data/x", b"x")),
        (
            "data/out",
            layer().pax(&[("linkpath", "/etc/passwd")]).symlink("data/out", "metadata.json"),
        ),
    ];
    for (name, hostile) in cases {
        let message = refusal(&hostile);
        assert!(message.contains(name), "{message} does not name {name}");
    }
}

#[test]
fn links_that_lead_outside_only_together_are_refused() {
    // Each link stays within the image by its text, but the first one shortens the path of the
    // second.
    let up = || layer().dir("data/d/e").symlink("data/d/e/up", "../..");
    for out in ["d/e/up/../../..", "d/e/up/../../../lock", "d/e/up/../../../blobs/sha256"] {
        let message = refusal(&up().symlink("data/out", out));
        assert!(message.contains("data/out") && message.contains("out of the image"), "{message}");
    }
}

#[test]
fn long_chains_of_links_are_refused_or_followed() {
    let first = || layer().file("data/0", b"x");
    let chain = |length: u32, link: fn(LayerBuilder, &str, &str) -> LayerBuilder| {
        (0..length).fold(first(), |layer, at| {
            link(layer, &format!("data/{}", at + 1), &format!("data/{at}"))
        })
    };
    let symbolic = |layer: LayerBuilder, name: &str, target: &str| {
        layer.symlink(name, target.trim_start_matches("data/"))
    };
    assert!(refusal(&chain(1000, symbolic)).contains("data/"));
    let hard = |layer: LayerBuilder, name: &str, target: &str| layer.hard_link(name, target);
    let unpacked = Fixture::new().unpack_on_package(&[chain(1000, hard)]);
    assert!(unpacked.is_ok(), "{unpacked:?}");
}

#[test]
fn parent_directories_count_as_entries() {
    let fixture = limited(ByteSize::mib(1), 40);
    let deep = format!("data/{}x", "d/".repeat(60));
    let error = fixture.unpack_on_package(&[layer().file(&deep, b"x")]).expect_err("60 entries");
    assert!(error.to_string().contains("more than 40 entries"), "{error}");
    assert_eq!(fixture.names("trees"), [""; 0]);
}

#[test]
fn parent_directories_need_space() {
    let fixture = Fixture::of_size(ByteSize::kib(200));
    let deep = format!("data/{}x", "d/".repeat(60));
    let error = fixture.unpack_on_package(&[layer().file(&deep, b"x")]).expect_err("240 KiB");
    assert_eq!(error.reason(), Reason::StoreFull, "{error:?}");
    assert_eq!(fixture.names("trees"), [""; 0]);
}

#[test]
fn archives_with_wrong_headers_are_refused() {
    let header = |kind, size| layer().header(kind, "data/x", "", size);
    let regular = EntryType::Regular;
    let mut flipped = layer().file("data/x", b"x").build(LayerKind::Tar).bytes;
    flipped[0] ^= 1;
    // The size field of GNU tar's extension: 2^80, -1 and 2^64.
    let sized = |field: [u8; 12]| {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..6].copy_from_slice(b"data/x");
        header.set_entry_type(regular);
        header.as_old_mut().size = field;
        header.set_cksum();
        layer().raw(header.as_bytes())
    };
    let not_a_number = "its size is not a number";
    let cases = [
        (not_a_number, sized([0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        (not_a_number, sized([0xff; 12])),
        (not_a_number, sized([0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])),
        (not_a_number, sized(*b"99999999999 ")),
        ("cut off", sized([0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0])),
        ("cut off", header(regular, 4096)),
        ("cut off", layer().raw(&sparse_header("etc/x", 4096))),
        ("checksum is wrong", layer().entry(EntryType::Directory, "data/dir", "", b"content")),
        ("unpacks to more than", header(regular, u64::MAX / 2)),
        ("an extension is too long", header(EntryType::GNULongName, 2 << 20)),
        ("an extension is too long", header(EntryType::XHeader, 2 << 20)),
        ("checksum is wrong", layer().raw(&flipped)),
        ("checksum is wrong", layer().raw(&[0xff; 512])),
        ("a pax record is invalid", layer().entry(EntryType::XHeader, "x", "", b"5 a=b\n")),
        ("a pax record is invalid", layer().entry(EntryType::XHeader, "x", "", b"0 a=b\n")),
        ("a pax record is invalid", layer().entry(EntryType::XHeader, "x", "", b"99 a=b\n")),
        ("a pax size is not a number", layer().pax(&[("size", "-1")]).file("data/x", b"x")),
        ("a global header", layer().entry(EntryType::XGlobalHeader, "x", "", b"9 path=x\n")),
    ];
    for (what, hostile) in cases {
        let message = refusal(&hostile);
        assert!(message.contains(what), "{message} does not say {what}");
    }
    let cut = layer().raw(&flipped[..300]).build_unfinished(LayerKind::Tar);
    let error = Fixture::new().unpack(&[cut]).expect_err("half a header");
    assert!(error.to_string().contains("cut off"), "{error}");
}

#[test]
fn a_link_to_a_directory_inside_of_the_model_is_refused() {
    let upper = layer().symlink(&format!("{MODEL}/loop"), ".");
    let message = refusal(&upper);
    assert!(message.contains("links to the directory"), "{message}");
}

#[test]
fn a_decompression_bomb_ends_at_the_limit() {
    for kind in [LayerKind::TarGzip, LayerKind::TarZstd] {
        for name in ["data/bomb", "elsewhere/bomb"] {
            let fixture = limited(ByteSize::mib(1), 100);
            let bomb = good().file(name, vec![0; 8 << 20]).build(kind);
            assert!(bomb.bytes.len() < 100_000);
            let error = fixture.unpack(&[bomb]).expect_err("a bomb");
            assert!(error.to_string().contains("unpacks to more than 1.0 MiB"), "{error}");
            assert_eq!(fixture.names("trees"), [""; 0]);
        }
    }
}

#[test]
fn a_layer_does_not_choose_how_much_memory_its_names_and_its_window_take() {
    let folder = |letter: &str| letter.repeat(255);
    let below = format!("data/{}/{}/{}", folder("a"), folder("b"), folder("c"));
    let named = |count: usize| {
        (0..count).fold(layer(), |layer, index| layer.whiteout(&format!("{below}/{index:0>196}")))
    };
    let message = refusal(&named(9000));
    assert!(message.contains("more than 8.0 MiB in total"), "{message}");
    Fixture::new().unpack_on_package(&[named(8000)]).expect("7.9 MB of names");

    let compressed = |window: u32| {
        let layer = good().build(LayerKind::Tar);
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).expect("a valid level");
        encoder.window_log(window).expect("a valid window");
        std::io::Write::write_all(&mut encoder, &layer.bytes).expect("into memory");
        let bytes = encoder.finish().expect("into memory");
        BuiltLayer { digest: Digest::of(&bytes), kind: LayerKind::TarZstd, bytes, ..layer }
    };
    Fixture::new().unpack(&[compressed(23)]).expect("a window of 8 MiB");
    let error = Fixture::new().unpack(&[compressed(24)]).expect_err("a window of 16 MiB");
    assert_eq!(error.reason(), Reason::ImageInvalid, "{error:?}");
}

#[test]
fn bytes_after_the_archive_count_towards_the_limit() {
    let fixture = limited(ByteSize::mib(1), 100);
    let bomb = good().raw(&[0; 1024]).raw(&vec![0; 8 << 20]).build_unfinished(LayerKind::TarGzip);
    let error = fixture.unpack(&[bomb]).expect_err("a bomb");
    assert!(error.to_string().contains("unpacks to more than"), "{error}");
}

#[test]
fn the_limits_are_those_of_all_layers_together() {
    let upper = layer().file("data/a", vec![1; 600 << 10]);
    let other = layer().file("data/b", vec![2; 600 << 10]);
    let fixture = limited(ByteSize::mib(1), 100);
    fixture.unpack_on_package(std::slice::from_ref(&upper)).expect("one fits");
    let error = fixture.unpack_on_package(&[upper, other]).expect_err("two do not");
    assert!(error.to_string().contains("unpacks to more than"), "{error}");

    let many = (0..20).fold(layer(), |layer, n| layer.file(&format!("data/{n}"), b""));
    let error = limited(ByteSize::gib(1), 20).unpack_on_package(&[many]).expect_err("too many");
    assert!(error.to_string().contains("more than 20 entries"), "{error}");
}

fn odd_name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        1 => Just("..".to_owned()),
        2 => Just(".".to_owned()),
        2 => Just("data".to_owned()),
        3 => Just("l".to_owned()),
        2 => Just(".wh.l".to_owned()),
        16 => "[a-c]{0,2}",
    ];
    (prop::bool::weighted(0.1), prop::collection::vec(part, 0..6)).prop_map(|(rooted, parts)| {
        format!("{}{}", if rooted { "/data/" } else { "data/" }, parts.join("/"))
    })
}

fn odd_entry() -> impl Strategy<Value = (u8, String, String)> {
    (0..10_u8, odd_name(), odd_name())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_entry_escapes(entries in prop::collection::vec(odd_entry(), 1..8)) {
        let fixture = Fixture::new();
        let secret = fixture.dir.path().join("secret");
        fs::write(&secret, b"untouched").unwrap();
        let upper = entries.iter().fold(layer(), |layer, (kind, name, target)| match kind {
            0..4 => layer.file(name, b""),
            4..7 => layer.dir(name),
            7..9 => layer.symlink(name, &target.replace("data/", "../")),
            _ => layer.hard_link(name, target),
        });
        let result = fixture.unpack_on_package(&[upper]);
        prop_assert_eq!(fs::read(&secret).unwrap(), b"untouched");
        let around: Vec<_> = fs::read_dir(fixture.dir.path()).unwrap()
            .map(|entry| entry.unwrap().file_name()).collect();
        prop_assert_eq!(around.len(), 2, "{:?}", around);
        let store = fixture.names("");
        prop_assert_eq!(store, ["blobs", "journal", "lock", "partial", "trees"]);
        match result {
            Ok(tree) => {
                let root = fixture.path("trees").join(tree.digest().hex());
                prop_assert_eq!(fixture.names("trees"), [tree.digest().hex()]);
                let kept = fixture.names(&format!("trees/{}", tree.digest().hex()));
                prop_assert_eq!(kept, ["data", "tree.json"]);
                prop_assert!(stays_inside(&root, &root));
            }
            Err(_) => prop_assert_eq!(fixture.names("trees"), [""; 0]),
        }
    }
}

fn stays_inside(dir: &Path, root: &Path) -> bool {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).all(|path| {
        let inside = fs::canonicalize(&path).is_ok_and(|real| real.starts_with(root));
        let is_dir = fs::symlink_metadata(&path).unwrap().is_dir();
        inside && (!is_dir || stays_inside(&path, root))
    })
}
