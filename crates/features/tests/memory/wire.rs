//! Encoded requests.

use outrigger_features::{Limits, Metadata, Plan, requests};
use outrigger_proto::outrigger::v1::ResponseOptions;
use prost::encoding::bytes;

use crate::most;

/// The length of the messages: chosen so that vectors that double are not just full.
const LENGTH: usize = 1_100_000;

/// The maximum memory of a message, as a multiple of its length: most parts are not
/// copied.
const FACTOR: usize = 10;
/// Additional memory in bytes, independent of the length: for the treatments and columns
/// up to their limits.
const FIXED: usize = 512 << 10;

const METADATA: &[u8] = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
    "inputs": [
      {"tensor": "x", "entity": "user", "dtype": "float32", "features": [
        {"name": "x", "missing": "nan"}, {"name": "v", "length": 2, "default": [0, 0]}]},
      {"tensor": "y", "entity": "treatment", "dtype": "float32", "features": [
        {"name": "y", "missing": "nan"}]},
      {"tensor": "z", "entity": "treatment", "dtype": "string", "features": [
        {"name": "z", "default": ""}]}],
    "outputs": [{"tensor": "s", "name": "s", "kind": "per_treatment"}]}"#;

/// The path of nested fields, and the field repeated within.
type Message = (&'static [u32], fn(usize) -> Vec<u8>);

/// A field that is a message.
fn field(number: u32, body: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    bytes::encode(number, &body.to_vec(), &mut field);
    field
}

/// A name of three letters, different for each index.
fn name(index: usize) -> [u8; 3] {
    [index >> 14, index >> 7, index].map(|bits| bits as u8 & 0x7f)
}

/// A feature whose value is empty.
fn entry(number: u32, index: usize) -> Vec<u8> {
    field(number, &field(1, &name(index)))
}

/// The same in a valid encoding that no library writes.
fn odd_entry(number: u32, name: &[u8]) -> Vec<u8> {
    field(number, &[&field(2, b""), &field(1, name)[..]].concat())
}

/// A message in which something is repeated until it is long.
fn encoded(path: &[u32], repeated: fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut message = Vec::new();
    for index in 0.. {
        message.extend(repeated(index));
        if message.len() >= LENGTH {
            break;
        }
    }
    path.iter().rev().fold(message, |body, number| field(*number, &body))
}

/// Requests designed to use much memory.
const REQUESTS: [Message; 43] = [
    // Treatments.
    (&[], |_| field(6, b"")),
    (&[], |_| field(6, &entry(2, 0))),
    (&[6], |index| entry(2, index)),
    (&[6], |index| odd_entry(2, &name(index))),
    (&[6], |_| odd_entry(2, b"y")),
    (&[6, 2, 2, 6], |_| vec![0x0d, 0, 0, 0, 0]),
    // Tables.
    (&[], |_| field(7, b"\x50\0")),
    (&[7], |_| field(1, b"")),
    (&[7], |_| field(3, b"")),
    (&[7], |index| field(3, &field(1, &name(index)))),
    (&[7], |_| field(4, b"")),
    (&[7, 2], |_| field(1, b"")),
    (&[7, 2], |_| [field(1, b""), field(2, b"")].concat()),
    (&[7, 2], |index| field(1, &name(index))),
    (&[7, 2], |_| vec![0x18, 1]),
    (&[7, 2, 3], |_| vec![1]),
    (&[7, 3], |_| field(2, b"")),
    (&[7, 3], |_| [field(2, b""), field(4, b"")].concat()),
    (&[7, 4], |_| vec![0x10, 1]),
    (&[7, 4], |_| field(2, b"\x01\x01")),
    (&[7, 4, 2], |_| vec![1]),
    (&[7], |_| field(7, b"")),
    (&[7, 7], |_| vec![0x10, 1]),
    (&[7, 7], |_| field(7, b"")),
    (&[7, 7, 2], |_| vec![1]),
    // The user.
    (&[], |_| field(4, b"\x50\0")),
    (&[4], |index| entry(1, index)),
    (&[4], |_| odd_entry(1, b"x")),
    (&[4, 1, 2, 7], |_| field(1, b"")),
    (&[4, 1, 2, 8, 1], |_| vec![1]),
    (&[4, 1, 2, 10, 1], |_| vec![1]),
    (&[4, 1, 2, 10], |_| field(3, b"")),
    (&[4, 1], |_| field(2, &field(7, &field(1, b"")))),
    // The user as an object.
    (&[5], |index| entry(1, index)),
    (&[5], |_| odd_entry(1, b"x")),
    (&[5, 1], |index| field(2, &field(5, &entry(1, index)))),
    (&[5, 1, 2], |index| field(5, &entry(1, index))),
    (&[5, 1, 2], |_| field(6, &field(1, b""))),
    (&[5, 1, 2, 5], |index| entry(1, index)),
    (&[5, 1, 2, 6], |_| field(1, b"")),
    (&[5, 1, 2, 6], |_| field(1, &field(5, &field(1, b"")))),
    // The options.
    (&[9], |_| field(3, b"")),
    (&[], |_| field(9, &field(3, b""))),
];

/// A user whose features all lie in an object whose name is half of the message.
fn below_a_long_name() -> Vec<u8> {
    /// The message is short, so that keeping its name for every feature does not fill the
    /// memory.
    const LENGTH: usize = 1 << 15;
    let leaf = |index| field(1, &[&field(1, &name(index)), &field(2, b"\x20\x01")[..]].concat());
    let leaves = (0..LENGTH / 2 / leaf(0).len()).flat_map(leaf).collect::<Vec<_>>();
    let outer = [field(1, &[b'x'; LENGTH / 2]), field(2, &field(5, &leaves))].concat();
    field(5, &field(1, &outer))
}

/// A user whose feature `v` has its value before its key, an encoding that no library
/// writes.
fn odd_value((path, repeated): Message) -> Vec<u8> {
    let (user, path) = path.split_first().expect("a user");
    let value = field(2, &encoded(path, repeated));
    field(*user, &field(1, &[value, field(1, b"v")].concat()))
}

/// The memory of a message as a multiple of its length; `None` if it does not exceed
/// `factor`.
fn excess(message: &[u8], factor: usize, work: impl FnOnce()) -> Option<f64> {
    let (length, most) = (message.len(), most(work));
    (most > factor * length + FIXED).then(|| most as f64 / length as f64)
}

#[test]
fn no_request_takes_many_times_its_length() {
    let plan = Plan::compile(Metadata::parse(METADATA).expect("valid"));
    for (path, repeated) in &REQUESTS {
        let request = encoded(path, *repeated);
        let excess = excess(&request, FACTOR, || {
            plan.pack(&[&request], &Limits::default()).ok();
        });
        assert_eq!(excess, None, "{:x?} in {path:?}", repeated(0));
    }
}

#[test]
fn no_list_written_oddly_takes_many_times_its_length() {
    let plan = Plan::compile(Metadata::parse(METADATA).expect("valid"));
    let lists: [Message; 9] = [
        (&[4, 6], |_| vec![0x0d, 0, 0, 0, 0]),
        (&[4, 7], |_| field(1, b"")),
        (&[4], |_| field(7, &field(1, b""))),
        (&[4, 8], |_| vec![0x0a, 1, 1]),
        (&[4, 8, 1], |_| vec![1]),
        (&[4], |_| field(8, &[8, 1])),
        (&[5, 6], |_| field(1, b"")),
        (&[5, 6], |_| field(1, &[0x20, 1])),
        (&[5], |_| field(6, &field(1, b""))),
    ];
    for (path, repeated) in lists {
        let request = odd_value((path, repeated));
        let excess = excess(&request, FACTOR, || {
            let refused = plan.pack(&[&request], &Limits::default()).expect_err("too long");
            assert_eq!(refused.reason.as_str(), "FEATURE_LENGTH");
        });
        assert_eq!(excess, None, "{:x?} in {path:?}", repeated(0));
    }
}

#[test]
fn no_name_is_kept_for_every_feature_below_it() {
    let plan = Plan::compile(Metadata::parse(METADATA).expect("valid"));
    let request = below_a_long_name();
    let excess = excess(&request, FACTOR, || {
        plan.explain(&[&request], &Limits::default()).expect("packs");
    });
    assert_eq!(excess, None);
}

#[test]
fn no_batch_takes_many_times_its_length() {
    let plan = Plan::compile(Metadata::parse(METADATA).expect("valid"));
    let (limits, options) = (Limits::default(), ResponseOptions::default());
    // Requests beyond the limit are not stored.
    let batches: [(Message, usize); 3] = [
        ((&[], |_| field(4, b"")), 0),
        ((&[4], |_| field(6, b"")), FACTOR),
        ((&[4, 7], |_| field(3, b"")), FACTOR),
    ];
    for ((path, repeated), factor) in batches {
        let batch = encoded(path, repeated);
        let excess = excess(&batch, factor, || {
            if let Ok(requests) = requests(&batch, &limits) {
                plan.pack_batch(&requests, &options, &limits).ok();
            }
        });
        assert_eq!(excess, None, "{:x?} in {path:?}", repeated(0));
    }
}
