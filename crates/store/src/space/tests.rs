use std::{
    cell::RefCell,
    fs,
    process::Command,
    time::{Duration, SystemTime},
};

use outrigger_core::{LayerKind, Reason};
use outrigger_testkit::layers::BuiltLayer;

use super::*;
use crate::{
    Tree,
    testing::{Fixture, good, package, servable},
};

const FREE: InUse<'_> = &|_| false;

/// An image whose tree takes about `kib` of incompressible content, different for each `seed`.
fn image(seed: u64, kib: usize) -> BuiltLayer {
    let mut state = seed;
    let mut noise = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let content: Vec<u8> = (0..kib << 10).map(|_| noise()).collect();
    good().file("data/content", content).build(LayerKind::TarGzip)
}

/// Sets the time of last use of `path` to `age` hours ago.
fn used(path: PathBuf, age: u64) {
    let then = SystemTime::now() - Duration::from_secs(age * 3600);
    fs::File::open(path).and_then(|file| file.set_modified(then)).expect("it is there");
}

fn tree_used(fixture: &Fixture, tree: &Tree, age: u64) {
    used(fixture.path("trees").join(tree.digest().hex()).join("tree.json"), age);
}

fn digest(seed: u8) -> Digest {
    Digest::of(&[seed])
}

/// A pull of one layer, of which all bytes are about to be written.
fn pull(fixture: &Fixture, layer: Digest, bytes: u64, in_use: InUse<'_>) -> Result<Reservation> {
    let reservation = fixture.store.reserve(&[(layer, bytes)], in_use)?;
    reservation.grow(&layer, bytes, bytes, in_use)?;
    Ok(reservation)
}

#[test]
fn usage_counts_a_shared_layer_once() {
    let fixture = Fixture::new();
    let shared = image(1, 100);
    let other = good().file("data/other", b"x").build(LayerKind::Tar);
    fixture.unpack(std::slice::from_ref(&shared)).expect("fits");
    let before = fixture.store.usage().expect("readable");
    fixture.unpack(&[shared, other.clone()]).expect("fits");
    let after = fixture.store.usage().expect("readable");
    let added = after.blobs.as_u64() - before.blobs.as_u64();
    assert_eq!(added, on_disk(other.bytes.len() as u64));
    assert!(after.trees > before.trees);
    assert_eq!(after.total().as_u64(), after.blobs.as_u64() + after.trees.as_u64());
}

#[test]
fn layers_are_evicted_before_trees_and_least_recently_used_first() {
    let fixture = Fixture::of_size(ByteSize::mib(2));
    let layers = [image(1, 300), image(2, 300), image(3, 300)];
    let trees: Vec<_> = layers
        .iter()
        .map(|layer| fixture.unpack(std::slice::from_ref(layer)).expect("fits"))
        .collect();
    let ages = [2, 3, 1];
    for ((layer, tree), age) in layers.iter().zip(&trees).zip(ages) {
        used(fixture.store.blob(&layer.digest), age);
        tree_used(&fixture, tree, age);
    }
    let blobs = || layers.each_ref().map(|layer| fixture.store.has_blob(&layer.digest));
    let kept = || [0, 1, 2].map(|n: usize| fixture.store.tree(trees[n].digest()).is_some());
    let take = |kib: u64| {
        drop(pull(&fixture, digest(9), kib << 10, FREE).expect("room can be made"));
    };
    take(300);
    assert_eq!((blobs(), kept()), ([true, false, true], [true; 3]));
    take(1000);
    assert_eq!((blobs(), kept()), ([false; 3], [true; 3]));
    take(1300);
    assert_eq!(kept(), [true, false, true]);
    take(2048);
    assert_eq!(kept(), [false; 3]);
}

#[test]
fn partial_downloads_without_a_reservation_are_evicted_first() {
    let fixture = Fixture::of_size(ByteSize::mib(1));
    let (wanted, old) = (digest(1), digest(2));
    for digest in [wanted, old] {
        fs::write(fixture.store.partial(&digest), vec![0; 300 << 10]).unwrap();
    }
    let _reservation = pull(&fixture, wanted, 500 << 10, FREE).expect("fits");
    // Each partial download has 300 KiB. The reserved layer needs 200 KiB more, which fit only
    // after the other one is evicted.
    let _other = pull(&fixture, digest(3), 300 << 10, FREE).expect("room is made");
    assert_eq!(fixture.names("partial"), [wanted.hex()]);
}

#[test]
fn published_used_and_reserved_content_is_not_evicted() {
    let fixture = Fixture::of_size(ByteSize::mib(2));
    let layers = [image(1, 300), image(2, 300), image(3, 10)];
    let trees = layers.each_ref().map(|layer| fixture.unpack(std::slice::from_ref(layer)).unwrap());
    fixture.serving().publish(&servable("churn", 1), &trees[0]).expect("published");
    let in_use = |digest: &Digest| digest == trees[1].digest();
    let pinned = (layers[0].digest, layers[0].bytes.len() as u64);
    let _pin = fixture.store.reserve(&[pinned], FREE).expect("there already");
    let error = pull(&fixture, digest(9), 1200 << 10, &in_use).expect_err("too much");
    assert_eq!(error.reason(), Reason::StoreFull, "{error:?}");
    assert!(
        trees.iter().all(|tree| fixture.store.tree(tree.digest()).is_some()),
        "nothing goes when it would not be enough"
    );
    drop(pull(&fixture, digest(9), 1090 << 10, &in_use).expect("enough"));
    let kept = trees.each_ref().map(|tree| fixture.store.tree(tree.digest()).is_some());
    assert_eq!(kept, [true, true, false]);
    let blobs = layers.each_ref().map(|layer| fixture.store.has_blob(&layer.digest));
    assert_eq!(blobs, [true, false, false]);
}

#[test]
fn sizes_that_no_disk_has_are_refused_and_do_not_wrap_around() {
    let fixture = Fixture::of_size(ByteSize::mib(1));
    let layers = [1, 2, 3].map(|seed| (digest(seed), i64::MAX.unsigned_abs()));
    let error = fixture.store.reserve(&layers, FREE).expect_err("together more than 64 bits");
    assert_eq!(error.reason(), Reason::StoreFull, "{error:?}");
}

#[test]
fn a_layer_that_is_named_twice_counts_with_its_larger_size() {
    let fixture = Fixture::of_size(ByteSize::mib(1));
    for sizes in [[2 << 20, 1], [1, 2 << 20]] {
        let layers = sizes.map(|size| (digest(1), size));
        let error = fixture.store.reserve(&layers, FREE).expect_err("2 MiB");
        assert_eq!(error.reason(), Reason::StoreFull, "{error:?}");
    }
}

#[test]
fn reservations_add_up_and_end_when_dropped() {
    let fixture = Fixture::of_size(ByteSize::mib(1));
    let reserve = |seed| pull(&fixture, digest(seed), 600 << 10, FREE);
    let first = reserve(1).expect("fits");
    let error = reserve(2).expect_err("reserved already");
    assert!(error.to_string().contains("the store is full"), "{error}");
    let same = reserve(1).expect("the same layer is counted once");
    drop((first, same));
    drop(reserve(2).expect("free again"));
}

#[test]
fn downloaded_bytes_are_not_reserved_again() {
    let fixture = Fixture::of_size(ByteSize::mib(1));
    let _pull = pull(&fixture, digest(1), 600 << 10, FREE).expect("fits");
    fs::write(fixture.store.partial(&digest(1)), vec![0; 600 << 10]).unwrap();
    drop(pull(&fixture, digest(2), 400 << 10, FREE).expect("1000 KiB in all"));
    fixture.store.commit_blob(&digest(1)).expect("complete");
    drop(pull(&fixture, digest(2), 400 << 10, FREE).expect("as before"));
}

/// A manifest can claim any size, so only bytes that arrive take space from others.
#[test]
fn a_claimed_size_takes_no_space_until_its_bytes_arrive() {
    let fixture = Fixture::of_size(ByteSize::mib(1));
    let old = image(1, 100);
    let tree = fixture.unpack(std::slice::from_ref(&old)).expect("fits");
    let kept = || fixture.store.tree(tree.digest()).is_some();
    let claim = (digest(1), 1000 << 10);
    let slow = fixture.store.reserve(&[claim], FREE).expect("it would fit");
    slow.grow(&claim.0, 16, claim.1, FREE).expect("a few bytes");
    drop(pull(&fixture, digest(2), 500 << 10, FREE).expect("another pull is not held up"));
    assert!(fixture.store.has_blob(&old.digest) && kept(), "nothing is evicted for a claim");
    slow.grow(&claim.0, claim.1, claim.1, FREE).expect("the bytes arrive");
    assert!(!kept(), "now their space is needed");
    let other = fixture.store.reserve(&[(digest(2), 500 << 10)], FREE);
    assert_eq!(other.expect_err("taken").reason(), Reason::StoreFull);
}

#[test]
fn a_reservation_larger_than_the_disk_is_refused() {
    let fixture = Fixture::of_size(ByteSize(u64::MAX));
    let error = fixture.store.reserve(&[(digest(1), 1 << 60)], FREE).expect_err("an exbibyte");
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    assert_eq!(error.reason(), Reason::StoreFull);
}

#[test]
fn an_image_that_does_not_fit_unpacked_is_refused_and_leaves_nothing() {
    let fixture = Fixture::of_size(ByteSize::mib(1));
    let small = image(1, 100);
    let small = fixture.unpack(&[small]).expect("fits");
    let zeros = good().file("data/zeros", vec![0; 2 << 20]).build(LayerKind::TarGzip);
    let error = fixture.unpack(&[zeros]).expect_err("does not fit");
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert!(error.is_transient());
    assert_eq!(
        fixture.names("trees").len(),
        usize::from(fixture.store.tree(small.digest()).is_some())
    );
    let usage = fixture.store.usage().expect("readable");
    drop(pull(&fixture, digest(1), 700 << 10, FREE).expect("the reservation has ended"));
    assert!(usage.total() <= ByteSize::mib(1));
}

#[test]
fn unpacking_evicts_content_that_is_not_in_use() {
    let fixture = Fixture::of_size(ByteSize::mib(1));
    let old = fixture.unpack(&[image(1, 300)]).expect("fits");
    let layer = image(2, 400);
    fixture.add(&layer);
    let asked = RefCell::new(Vec::new());
    let in_use = |digest: &Digest| {
        asked.borrow_mut().push(*digest);
        false
    };
    let tree = fixture.store.unpack(&package(&[layer]), &in_use).expect("room is made");
    assert!(fixture.store.tree(old.digest()).is_none());
    assert!(fixture.store.tree(tree.digest()).is_some());
    assert!(asked.borrow().contains(old.digest()));
}

#[test]
fn removing_a_tree_removes_layers_that_no_other_tree_has() {
    let fixture = Fixture::new();
    let (shared, own) = (good().build(LayerKind::Tar), image(1, 1));
    let both = fixture.unpack(&[shared.clone(), own.clone()]).expect("fits");
    let other = fixture.unpack(std::slice::from_ref(&shared)).expect("fits");
    fixture.store.remove_tree(both.digest()).expect("free");
    fixture.store.remove_tree(both.digest()).expect("gone already");
    assert!(fixture.store.has_blob(&shared.digest) && !fixture.store.has_blob(&own.digest));
    fixture.store.remove_tree(other.digest()).expect("free");
    assert_eq!(fixture.store.usage().expect("readable").total(), ByteSize(0));
}

#[test]
fn a_complete_download_is_committed_once() {
    let fixture = Fixture::new();
    let layer = image(1, 1);
    let missing = fixture.store.commit_blob(&layer.digest);
    assert!(matches!(missing, Err(Error::BlobMissing(_))), "{missing:?}");
    for _ in 0..2 {
        fixture.add(&layer);
    }
    assert!(fixture.store.has_blob(&layer.digest));
    assert_eq!(fixture.names("partial"), [""; 0]);
}

/// The process's limit of file size makes a write fail half way, as a full disk does.
const LIMITED: &str = "OUTRIGGER_STORE_TEST_LIMITED";

#[test]
fn a_disk_that_fills_up_while_unpacking_leaves_nothing() {
    if std::env::var_os(LIMITED).is_some() {
        let fixture = Fixture::new();
        let layer = good().file("data/zeros", vec![0; 1 << 20]).build(LayerKind::TarGzip);
        let error = fixture.unpack(&[layer]).expect_err("no file may have 1 MiB");
        assert!(matches!(error, Error::NoSpace { source: Some(_), .. }), "{error:?}");
        assert_eq!(error.reason(), Reason::StoreFull);
        assert_eq!(fixture.names("trees"), [""; 0]);
        return;
    }
    let this = "space::tests::a_disk_that_fills_up_while_unpacking_leaves_nothing";
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 256; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe().expect("this test"))
        .arg(this)
        .env(LIMITED, "1")
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
