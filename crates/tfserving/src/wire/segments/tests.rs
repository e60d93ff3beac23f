use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// Generates the parts of a message, each either written or shared.
fn parts() -> impl Strategy<Value = Vec<(Bytes, bool)>> {
    let length = prop_oneof![Just(0), 0..20_usize, SHARED - 1..SHARED + 2, Just(3 * SHARED)];
    vec((length, any::<u8>(), any::<bool>()), 0..8).prop_map(|parts| {
        let part = |(length, first, is_payload): (usize, u8, bool)| {
            let bytes = (0..length).map(|at| (at as u8).wrapping_add(first));
            (bytes.collect(), is_payload)
        };
        parts.into_iter().map(part).collect()
    })
}

fn written(parts: &[(Bytes, bool)]) -> Segments {
    let mut writer = Writer::with_room(0, parts.len());
    for (bytes, is_payload) in parts {
        match is_payload {
            true => writer.put(bytes),
            false => writer.head.extend_from_slice(bytes),
        }
    }
    writer.finish()
}

fn flat(parts: &[(Bytes, bool)]) -> Vec<u8> {
    parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect()
}

/// Returns the bytes that one vectored write with `room` slices would take.
fn vectored(segments: &impl Buf, room: usize) -> Vec<u8> {
    let mut slices = vec![IoSlice::new(&[]); room];
    let filled = segments.chunks_vectored(&mut slices);
    slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect()
}

proptest! {
    #[test]
    fn pieces_read_as_the_whole_does(
        parts in parts(),
        steps in vec((any::<Index>(), 0_usize..6), 0..12),
    ) {
        let (mut segments, flat) = (written(&parts), flat(&parts));
        let mut left = &flat[..];
        for (step, room) in steps {
            prop_assert_eq!(segments.remaining(), left.len());
            prop_assert_eq!(segments.chunk().is_empty(), left.is_empty());
            prop_assert!(left.starts_with(segments.chunk()));
            prop_assert!(left.starts_with(&vectored(&segments, room)));
            let step = step.index(left.len() + 1);
            // Takes pieces as h2 does when it cuts a message into frames.
            let frame = segments.clone().take(step);
            prop_assert!(left[..step].starts_with(&vectored(&frame, room)));
            segments.advance(step);
            left = &left[step..];
        }
        prop_assert_eq!(&segments.copy_to_bytes(left.len())[..], left);
        prop_assert!(!segments.has_remaining());
    }
}

#[test]
fn all_pieces_are_offered_at_once_and_large_ones_are_not_copied() {
    let large: Bytes = vec![7; 80_000].into();
    let parts = [
        (Bytes::from_static(b"head"), false),
        (large.clone(), true),
        (Bytes::from_static(b"small"), true),
        (large.clone(), true),
    ];
    let segments = written(&parts);
    assert_eq!(segments.chunks_vectored(&mut [IoSlice::new(&[]); 9]), 4);
    assert_eq!(vectored(&segments, 4), flat(&parts));
    let is_shared = |piece: &&Bytes| piece.as_ptr() == large.as_ptr();
    assert_eq!(segments.pieces.iter().filter(is_shared).count(), 2);
}

#[test]
fn a_clone_is_read_by_itself_and_the_last_one_lets_the_pieces_go() {
    let large: Bytes = vec![7; 80_000].into();
    let parts = [(large.clone(), true), (Bytes::from_static(b"tail"), false)];
    let mut first = written(&parts);
    let mut again = first.clone();
    first.advance(first.remaining());
    assert_eq!(again.remaining(), 80_004);
    drop((parts, first));
    assert!(!large.is_unique());
    again.advance(80_000);
    assert_eq!(again.chunk(), b"tail");
    drop(again);
    assert!(large.is_unique());
}

#[test]
#[should_panic(expected = "5 of 4 bytes")]
fn there_is_no_way_past_the_end() {
    written(&[(Bytes::from_static(b"tail"), false)]).advance(5);
}
