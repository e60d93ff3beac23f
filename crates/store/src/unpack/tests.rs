mod hostile;

use std::{fs, os::unix::fs::PermissionsExt, process::Command, sync::Barrier, thread};

use bytesize::ByteSize;
use outrigger_core::{LayerKind, PackageLayout, Reason};
use outrigger_testkit::layers::{BuiltLayer, LayerBuilder};
use tar::EntryType;

use super::*;
use crate::{
    PackageProblem,
    testing::{Fixture, MODEL, good, package},
};

fn layer() -> LayerBuilder {
    LayerBuilder::new()
}

#[test]
fn a_package_unpacks_from_every_kind_of_layer() {
    for kind in [LayerKind::Tar, LayerKind::TarGzip, LayerKind::TarZstd] {
        let fixture = Fixture::new();
        let tree = fixture.unpack(&[good().build(kind)]).expect("a good package");
        assert_eq!(tree.metadata_bytes().unwrap(), b"{}");
        assert_eq!(fs::read(tree.model_dir().join("saved_model.pb")).unwrap(), b"model");
        assert_eq!(tree.golden(), None);
        assert_eq!(tree.labels()["a.label"], "its value");
        assert_eq!(tree.platform_digest(), &Digest::of(b"platform"));
        assert!(tree.model_dir().ends_with(MODEL));
        // Two files and four directories.
        assert_eq!(tree.size(), ByteSize(5 * 4096));
    }
}

#[test]
fn the_error_for_wrong_compression_names_the_actual_one() {
    let kinds = [LayerKind::Tar, LayerKind::TarGzip, LayerKind::TarZstd];
    for (packed, said) in kinds.into_iter().flat_map(|a| kinds.map(|b| (a, b))) {
        if packed == said {
            continue;
        }
        let lie = BuiltLayer { kind: said, ..good().build(packed) };
        let error = Fixture::new().unpack(&[lie]).expect_err("a lie");
        let text = error.to_string();
        assert!(text.contains("declared as") && text.contains("but it is"), "{text}");
        assert_eq!(error.reason(), Reason::ImageInvalid);
    }
}

#[test]
fn damaged_compression_is_refused_even_after_the_last_entry() {
    for kind in [LayerKind::TarGzip, LayerKind::TarZstd] {
        let mut bytes = good().build(kind).bytes;
        // The damage is in gzip's final checksum, or in the last zstd block.
        bytes.truncate(bytes.len() - 2);
        let cut = BuiltLayer { digest: Digest::of(&bytes), bytes, ..good().build(kind) };
        let fixture = Fixture::new();
        let error = fixture.unpack(&[cut]).expect_err("cut off");
        assert!(error.to_string().contains("damaged or cut off"), "{error}");
        assert_eq!(fixture.names("trees"), [""; 0]);
    }
}

/// Layers by `umoci insert` end this way.
#[test]
fn an_archive_may_end_with_the_content_of_its_last_entry() {
    let whole = good().build_unfinished(LayerKind::Tar).bytes;
    let content = whole.iter().rposition(|byte| *byte != 0).expect("content") + 1;
    assert!(content < whole.len(), "the last entry has padding");
    let unpack = |length: usize| {
        let bytes = whole[..length].to_vec();
        let digest = Digest::of(&bytes);
        let layer = BuiltLayer { digest, diff_id: digest, kind: LayerKind::Tar, bytes };
        Fixture::new()
            .unpack(&[layer])
            .map(|tree| fs::read(tree.model_dir().join("saved_model.pb")).unwrap())
    };
    for length in [content, content + 1] {
        assert_eq!(unpack(length).expect("whole content"), b"model");
    }
    let error = unpack(content - 1).expect_err("a byte is missing");
    assert!(error.to_string().contains("cut off"), "{error}");
}

#[test]
fn a_blob_damaged_on_disk_is_removed_and_the_image_is_not_blamed() {
    let fixture = Fixture::new();
    let layer = good().build(LayerKind::TarGzip);
    let mut rotten = layer.clone();
    let middle = rotten.bytes.len() / 2;
    rotten.bytes[middle] ^= 0xff;
    let error = fixture.unpack(&[rotten]).expect_err("rotten");
    assert!(matches!(error, Error::BlobCorrupt { .. }), "{error:?}");
    assert!(error.is_transient());
    assert!(!fixture.store.has_blob(&layer.digest));
    let again = fixture.store.unpack(&package(&[layer]), &|_| false).expect_err("it is gone");
    assert!(matches!(again, Error::BlobMissing(_)), "{again:?}");
}

#[test]
fn a_blob_that_unpacks_but_has_another_digest_is_refused() {
    let fixture = Fixture::new();
    let digest = Digest::of(b"something else");
    let error = fixture.unpack(&[BuiltLayer { digest, ..good().build(LayerKind::Tar) }]);
    assert!(matches!(error, Err(Error::BlobCorrupt { .. })), "{error:?}");
    assert_eq!(fixture.names("trees"), [""; 0]);
}

/// The header of a sparse file in GNU tar's old format, which continues in a further block.
fn sparse_header(name: &str, size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(EntryType::GNUSparse);
    header.set_size(size);
    header.as_gnu_mut().expect("the format").isextended = [1];
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[test]
fn entries_outside_of_data_are_ignored() {
    use EntryType as T;
    let odd = |kind, name: &str| layer().entry(kind, name, "", b"");
    let names = (0..9000).map(|name| format!("usr/{name:0>950}"));
    let cases = [
        layer().file("etc/passwd", b"root").hard_link("etc/shadow", "etc/passwd"),
        layer().symlink("bin", "usr/bin").symlink("etc/mtab", "/proc/mounts"),
        odd(T::Char, "dev/null"),
        odd(T::Block, "./dev/sda"),
        odd(T::Fifo, "run/pipe"),
        odd(T::new(b'V'), "etc/odd"),
        layer().header(T::Char, "dev/console", "", 4096),
        layer().raw(&sparse_header("var/log/lastlog", 3)).raw(&[0; 512]).content(b"abc"),
        layer().pax(&[("GNU.sparse.major", "1")]).file("var/log/faillog", b"x"),
        layer().symlink("etc/out", "../../etc/passwd").symlink("etc/none", ""),
        layer().hard_link("etc/hard", "../x").hard_link("etc/other", ""),
        layer().file(&format!("usr/{}", "x".repeat(300)), b"x"),
        layer().file(&format!("usr/{}x", "d/".repeat(70)), b"x"),
        layer().file(&format!("usr/{}x", "d/".repeat(600)), b"x"),
        layer().file("/etc/passwd", b"root").dir("/").dir("./"),
        layer().whiteout("etc/hosts").opaque("usr").file(".wh..wh.plnk", b"").dir(".wh.data/x"),
        names.fold(layer(), |layer, name| layer.file(&name, b"")),
    ];
    for (number, upper) in cases.into_iter().enumerate() {
        let fixture = Fixture::with(|config| config.limits.max_entries = 20);
        let tree = fixture.unpack_on_package(&[upper.file("data/last", b"x")]);
        let hex = tree.unwrap_or_else(|error| panic!("{number}: {error}")).digest().hex();
        assert_eq!(fixture.names(&format!("trees/{hex}")), ["data", "tree.json"], "{number}");
        let kept = fixture.names(&format!("trees/{hex}/data"));
        assert_eq!(kept, ["last", "metadata.json", "tensorflow_serving_model"], "{number}");
    }
}

#[test]
fn hard_links_start_at_the_root_of_the_image() {
    for target in ["data/metadata.json", "/data/metadata.json", "./data/x/../metadata.json"] {
        let fixture = Fixture::new();
        let upper = layer().hard_link("data/hard", target);
        let tree = fixture.unpack_on_package(&[upper]).expect(target);
        let path = fixture.path("trees").join(tree.digest().hex()).join("data/hard");
        assert_eq!(fs::read(path).unwrap(), b"{}", "{target}");
    }
}

#[test]
fn whiteouts_hide_entries_of_lower_layers_only() {
    let assets = format!("{MODEL}/assets");
    let asset = |name: &str| format!("{assets}/{name}");
    let base = layer()
        .file(&asset("a"), b"1")
        .file(&asset("b"), b"1")
        .file("data/old/x", b"1")
        .file("data/dir/lower", b"1");
    let upper = layer()
        .file(&asset("new"), b"2")
        .opaque(&assets)
        .whiteout("data/old")
        .file("data/dir/upper", b"2")
        .whiteout("data/dir")
        .whiteout("data/never")
        .file("data/.wh..wh.plnk", b"");
    let fixture = Fixture::new();
    let tree = fixture.unpack_on_package(&[base, upper]).expect("whiteouts are fine");
    let hex = tree.digest().hex();
    assert_eq!(fixture.names(&format!("trees/{hex}/{assets}")), ["new"]);
    let data = fixture.names(&format!("trees/{hex}/data"));
    assert_eq!(data, ["dir", "metadata.json", "tensorflow_serving_model"]);
    assert_eq!(fixture.names(&format!("trees/{hex}/data/dir")), ["upper"]);
}

/// AUFS wrote its whiteouts as hard links.
#[test]
fn an_entry_of_any_type_is_a_whiteout_by_its_name() {
    use EntryType as T;
    let types = [T::Link, T::Symlink, T::Fifo, T::Char, T::Directory, T::GNUSparse, T::new(b'V')];
    for kind in types {
        let fixture = Fixture::new();
        let base = layer().file("data/old", b"1").file("data/dir/lower", b"1");
        let upper = layer().entry(kind, "data/.wh.old", ".wh..wh.aufs", b"").entry(
            kind,
            "data/dir/.wh..wh..opq",
            ".wh..wh.aufs",
            b"",
        );
        let tree = fixture.unpack_on_package(&[base, upper]).expect("whiteouts");
        let data = format!("trees/{}/data", tree.digest().hex());
        assert_eq!(fixture.names(&data), ["dir", "metadata.json", "tensorflow_serving_model"]);
        assert_eq!(fixture.names(&format!("{data}/dir")), [""; 0], "{kind:?}");
    }
}

#[test]
fn the_whole_of_data_can_be_hidden_and_written_again() {
    for (hide, anew) in [(layer().whiteout("data"), "first"), (layer().opaque("."), "second")] {
        let fixture = Fixture::new();
        let hidden = fixture.unpack_on_package(std::slice::from_ref(&hide)).expect_err(anew);
        assert!(matches!(hidden, Error::Package { problem: PackageProblem::NoData, .. }));
        let base = layer().file("data/stale", b"x").build(LayerKind::Tar);
        let upper = hide.raw(&good().clone().build(LayerKind::Tar).bytes);
        let tree = fixture.unpack(&[base, upper.build(LayerKind::Tar)]).expect("made anew");
        let names = fixture.names(&format!("trees/{}/data", tree.digest().hex()));
        assert_eq!(names, ["metadata.json", "tensorflow_serving_model"]);
    }
}

#[test]
fn a_later_entry_replaces_an_earlier_one_and_never_writes_into_it() {
    let upper = layer()
        .file("data/a", b"first")
        .hard_link("data/b", "data/a")
        .file("data/a", b"second")
        .symlink("data/c", "b")
        .file("data/c", b"third")
        .file("data/d/inner", b"x")
        .file("data/d", b"fourth")
        .file("data/e", b"x")
        .file("data/e2", b"x")
        .dir("data/e")
        .file("data/e/inner", b"fifth");
    let fixture = Fixture::new();
    let tree = fixture.unpack_on_package(&[upper]).expect("duplicates are fine");
    let path = fixture.path("trees").join(tree.digest().hex()).join("data");
    let content = |name: &str| String::from_utf8(fs::read(path.join(name)).unwrap()).unwrap();
    let found = ["a", "b", "c", "d", "e/inner"].map(content);
    assert_eq!(found, ["second", "first", "third", "fourth", "fifth"]);
}

#[test]
fn links_that_stay_inside_are_kept_and_resolve_wherever_the_volume_is() {
    let upper = layer()
        .file("data/shared/vocabulary", b"words")
        .dir(&format!("{MODEL}/assets"))
        .symlink(&format!("{MODEL}/assets/absolute"), "/data/shared/vocabulary")
        .symlink(&format!("{MODEL}/assets/relative"), "../../../shared/vocabulary")
        .symlink("data/directory", "shared");
    let fixture = Fixture::new();
    let tree = fixture.unpack_on_package(&[upper]).expect("links inside");
    let elsewhere = fixture.dir.path().join("elsewhere");
    fs::rename(fixture.store.path(), &elsewhere).unwrap();
    let model = elsewhere.join(tree.model_dir().strip_prefix(fixture.store.path()).unwrap());
    for name in ["absolute", "relative"] {
        assert_eq!(fs::read(model.join("assets").join(name)).unwrap(), b"words", "{name}");
    }
}

/// Docker and containerd follow the links of earlier layers too, and take rooted names.
#[test]
fn entries_behind_links_lie_where_they_lead_within_the_root_of_the_image() {
    let base = layer()
        .file("data/real/old", b"old")
        .file("data/real/hidden", b"x")
        .file("data/emptied/x", b"x")
        .symlink("data/absolute", "/data/real")
        .symlink("data/dots", "./absolute/../real/.")
        .symlink("data/dangling", "made")
        .symlink("data/cleared", "emptied")
        .symlink("data/up", "..");
    let upper = layer()
        .file("data/absolute/a", b"1")
        .file("data/dots/b", b"2")
        .file("/data/dangling/c", b"3")
        .file("data/up/data/d", b"4")
        .file("data/up/x", b"outside")
        .file("data/up/srv/x", b"outside")
        .whiteout("data/absolute/hidden")
        .opaque("data/cleared")
        .hard_link("/data/hard", "/data/dots/old")
        .symlink("data/dots/soft", "old");
    let fixture = Fixture::new();
    let tree = fixture.unpack_on_package(&[base, upper, layer().whiteout("data/up")]);
    let hex = tree.expect("links inside").digest().hex();
    assert_eq!(fixture.names(&format!("trees/{hex}")), ["data", "tree.json"]);
    let data = format!("trees/{hex}/data");
    let expected = ["old", "1", "2", "3", "4", "old", "old"];
    for (name, content) in
        ["real/old", "real/a", "real/b", "made/c", "d", "hard", "real/soft"].iter().zip(expected)
    {
        let path = fixture.path(&data).join(name);
        assert_eq!(fs::read_to_string(path).expect(name), content, "{name}");
    }
    assert_eq!(fixture.names(&format!("{data}/real")), ["a", "b", "old", "soft"]);
    assert_eq!(fixture.names(&format!("{data}/emptied")), [""; 0]);
    assert!(fixture.path(&data).join("absolute").is_symlink());
}

#[test]
fn the_model_may_lie_behind_a_link_and_in_a_numeric_directory() {
    let parent = "data/tensorflow_serving_model";
    let numeric = layer()
        .file("data/metadata.json", b"{}")
        .file(&format!("{MODEL}/00042/saved_model.pb"), b"pb");
    let linked = layer()
        .file(&format!("{parent}/metadata.json"), b"{}")
        .file(&format!("{parent}/golden.jsonl"), b"{}\n")
        .file(&format!("{parent}/profile.json"), b"{}")
        .file(&format!("{parent}/v3/saved_model.pb"), b"pb")
        .symlink(MODEL, "v3");
    for (layer, dir, golden) in [
        (numeric, format!("{MODEL}/00042"), None),
        (linked, format!("{parent}/v3"), Some(b"{}\n".to_vec())),
    ] {
        let fixture = Fixture::new();
        let tree = fixture.unpack(&[layer.build(LayerKind::Tar)]).expect("a package");
        assert!(tree.model_dir().ends_with(&dir), "{dir}");
        assert_eq!(tree.profile_bytes().unwrap(), golden.as_ref().map(|_| b"{}".to_vec()));
        assert_eq!(tree.golden().map(|path| std::fs::read(path).unwrap()), golden);
    }
}

#[test]
fn the_error_for_a_missing_part_names_the_paths_searched() {
    let metadata = || layer().file("data/metadata.json", b"{}");
    let pb = |dir: &str| format!("{MODEL}{dir}/saved_model.pb");
    let cases = [
        ("no directory /data", layer().file("etc/x", b"x")),
        (
            "its /data is a symbolic link to \"srv/models\"",
            layer().symlink("data", "/srv/models").file("data/metadata.json", b"{}"),
        ),
        ("looked for /data/metadata.json and", layer().file(&pb(""), b"pb")),
        ("looked for saved_model.pb in /data/tensorflow_serving_model/model and", metadata()),
        ("looked for saved_model.pb", metadata().file(&pb("/export"), b"pb")),
        ("saved_model.pb is empty", metadata().file(&pb(""), b"")),
        ("1, 2; a package holds one", metadata().file(&pb("/1"), b"a").file(&pb("/2"), b"b")),
        ("metadata.json has 16.0 MiB", good().file("data/metadata.json", vec![0; (16 << 20) + 1])),
    ];
    for (what, layer) in cases {
        let fixture = Fixture::new();
        let error = fixture.unpack(&[layer.build(LayerKind::Tar)]).expect_err(what);
        assert_eq!(error.reason(), Reason::ImageInvalid);
        assert!(error.to_string().contains(what), "{error} does not say {what}");
        assert_eq!(fixture.names("trees"), [""; 0]);
    }
}

#[test]
fn the_framework_decides_where_the_model_lies() {
    let of = |framework: &str| {
        let metadata = format!("{{\"framework\": \"{framework}\"}}");
        let image = good().file("data/metadata.json", metadata.as_bytes());
        Fixture::new().unpack(&[image.build(LayerKind::Tar)])
    };
    assert!(of("tensorflow").is_ok());
    let error = of("onnx").expect_err("no layout is known for it");
    assert_eq!(error.reason(), Reason::EngineNotChosen);
    let expected = "no engine runs models of onnx; known frameworks: tensorflow";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn a_model_has_all_of_its_parts() {
    let layout = PackageLayout {
        directory: "several",
        files: &["model"],
        parts: &["a", "b"],
        max_file: 4,
        versioned: false,
    };
    let image = || layer().file("data/metadata.json", b"{}").file("data/several/model", b"x");
    for (layer, problem) in [
        (image(), Some("there is no file /data/several/a")),
        (image().file("data/several/a", b"x"), Some("there is no file /data/several/b")),
        (image().file("data/several/a", b"x").file("data/several/b", b""), Some("b is empty")),
        (image().file("data/several/a", b"large").file("data/several/b", b"x"), Some("a has 5 B")),
        (image().file("data/several/a", b"x").file("data/several/b", b"x"), None),
    ] {
        let fixture =
            Fixture::with(|config| config.layouts = [("several", layout)].into_iter().collect());
        let unpacked = fixture.unpack(&[layer.build(LayerKind::Tar)]);
        match problem {
            None => drop(unpacked.expect("a package")),
            Some(problem) => {
                let error = unpacked.expect_err(problem).to_string();
                assert!(error.contains(problem), "{error}");
            }
        }
    }
}

#[test]
fn the_engine_of_another_user_can_read_everything() {
    let fixture = Fixture::new();
    let tree = fixture.unpack_on_package(&[layer().file("data/a/b", b"x")]).expect("fine");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let root = fixture.path("trees").join(tree.digest().hex());
    for dir in ["", "data", "data/a", MODEL] {
        assert_eq!(mode(&root.join(dir)), 0o775, "{dir:?}");
    }
    for file in ["tree.json", "data/a/b", "data/metadata.json"] {
        assert_eq!(mode(&root.join(file)), 0o644, "{file:?}");
    }
}

#[test]
fn the_umask_does_not_matter() {
    let tests = [
        "unpack::tests::the_engine_of_another_user_can_read_everything",
        "store::tests::a_new_store_has_its_directories_open_to_the_engine",
    ];
    let output = Command::new("sh")
        .args(["-c", "umask 077; exec \"$0\" --exact \"$@\""])
        .arg(std::env::current_exe().expect("this test"))
        .args(tests)
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("2 passed"), "{text}");
}

#[test]
fn long_names_come_by_pax_and_by_gnu_headers() {
    let part = "n".repeat(120);
    let (pax, gnu) = (format!("data/{part}/pax"), format!("data/{part}/gnu"));
    let upper = layer()
        .file(&pax, b"x")
        .entry(EntryType::GNULongName, "././@LongLink", "", format!("{gnu}\0").as_bytes())
        .file("data/cut", b"x");
    let fixture = Fixture::new();
    let tree = fixture.unpack_on_package(&[upper]).expect("long names");
    let names = fixture.names(&format!("trees/{}/data/{part}", tree.digest().hex()));
    assert_eq!(names, ["gnu", "pax"]);
}

#[test]
fn a_pax_size_overrides_the_header() {
    let upper = layer()
        .pax(&[("size", "5")])
        .header(EntryType::Regular, "data/sized", "", 0)
        .content(b"12345")
        .file("data/next", b"x");
    let fixture = Fixture::new();
    let tree = fixture.unpack_on_package(&[upper]).expect("a pax size");
    let data = fixture.path("trees").join(tree.digest().hex()).join("data");
    assert_eq!(fs::read(data.join("sized")).unwrap(), b"12345");
    assert!(data.join("next").is_file());
}

#[test]
fn signatures_are_stored_and_removed_with_the_tree() {
    let fixture = Fixture::new();
    let tree = fixture.unpack(&[good().build(LayerKind::Tar)]).expect("a package");
    let (store, digest) = (&fixture.store, *tree.digest());
    assert_eq!(tree.signatures_bytes(), None);
    for signatures in [b"first", b"later"] {
        store.keep_signatures(&digest, signatures).expect("it is there");
        assert_eq!(tree.signatures_bytes().as_deref(), Some(&signatures[..]));
    }
    store.remove_tree(&digest).expect("nobody uses it");
    let error = store.keep_signatures(&digest, b"late").expect_err("it is gone");
    assert!(matches!(error, Error::TreeMissing(_)), "{error}");
    assert_eq!(fixture.names("trees"), [""; 0]);
}

#[test]
fn concurrent_calls_get_the_same_tree() {
    let fixture = Fixture::new();
    let layers = [good().file("data/large", vec![7; 4 << 20]).build(LayerKind::TarGzip)];
    fixture.add(&layers[0]);
    let (package, barrier) = (package(&layers), Barrier::new(4));
    let unpack = || {
        barrier.wait();
        fixture.store.unpack(&package, &|_| false).map(|tree| (tree.model_dir(), tree.last_used()))
    };
    let trees: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(unpack)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    // The sidecar was written only once.
    assert!(trees.iter().all(|tree| *tree == trees[0]), "{trees:?}");
    assert_eq!(fixture.names("trees"), [package.digest.hex()]);
}

#[test]
fn a_tree_that_cannot_be_opened_is_replaced() {
    let fixture = Fixture::new();
    let tree = fixture.unpack(&[good().build(LayerKind::Tar)]).expect("good");
    fs::write(fixture.path("trees").join(tree.digest().hex()).join("tree.json"), b"{").unwrap();
    assert!(fixture.store.tree(tree.digest()).is_none());
    fixture.unpack(&[good().build(LayerKind::Tar)]).expect("made again");
    assert!(fixture.store.tree(tree.digest()).is_some());
}
