use proptest::prelude::*;
use prost::encoding::{DecodeContext, decode_key, decode_varint, skip_field};

use super::*;

proptest! {
    #[test]
    fn varints_are_read_as_prost_reads_them(
        low in proptest::collection::vec(0x80u8.., 0..12),
        last in proptest::option::of(0u8..0x80),
        after in proptest::collection::vec(any::<u8>(), 0..3),
    ) {
        let bytes: Vec<_> = low.into_iter().chain(last).chain(after).collect();
        let (mut plain, mut reader) = (bytes.as_slice(), Reader::new(&bytes));
        match decode_varint(&mut plain) {
            Ok(value) => {
                prop_assert_eq!(reader.varint(), Ok(value));
                prop_assert_eq!(reader.rest(), plain);
            }
            Err(_) => prop_assert!(reader.varint().is_err()),
        }
    }

    #[test]
    fn fields_are_skipped_as_prost_skips_them(
        bytes in proptest::collection::vec(prop_oneof![0u8..32, any::<u8>()], 0..40),
    ) {
        let (mut plain, mut reader) = (bytes.as_slice(), Reader::new(&bytes));
        let expected = decode_key(&mut plain).and_then(|(number, wire_type)| {
            skip_field(wire_type, number, &mut plain, DecodeContext::default())
        });
        let found = reader.key().and_then(|(number, wire_type)| {
            reader.skip(number, wire_type, MAX_DEPTH)
        });
        prop_assert_eq!(found.is_ok(), expected.is_ok());
        if found.is_ok() {
            prop_assert_eq!(reader.rest(), plain);
        }
    }
}

#[test]
fn fields_are_read_in_order_and_groups_left_out() {
    let message = [
        0x08, 0x96, 0x01, 0x1b, 0x08, 1, 0x1c, 0x12, 2, 7, 8, 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4,
        5, 6, 7, 8,
    ];
    let read: Result<Vec<_>, _> = Fields::of(&message).collect();
    let expected = vec![
        (1, Value::Varint(150)),
        (2, Value::Bytes(&[7, 8])),
        (3, Value::Fixed32(&[1, 2, 3, 4])),
        (4, Value::Fixed64(&[1, 2, 3, 4, 5, 6, 7, 8])),
    ];
    assert_eq!(read, Ok(expected));
}

#[test]
fn groups_within_each_other_are_limited() {
    let skipped = |groups: usize| {
        let message = [[0x0b].repeat(groups), [0x0c].repeat(groups)].concat();
        Fields::of(&message).next().transpose().map(drop)
    };
    assert_eq!(skipped(MAX_DEPTH as usize), Ok(()));
    assert_eq!(skipped(MAX_DEPTH as usize + 1), Err(Malformed::Depth));
    assert_eq!(skipped(1_000_000), Err(Malformed::Depth));
}

#[test]
fn an_error_is_the_last_field() {
    let last = |message: &'static [u8]| Fields::of(message).collect::<Vec<_>>();
    assert_eq!(last(&[0x12, 9, 7]), [Err(Malformed::Truncated)]);
    assert_eq!(last(&[0x0b]), [Err(Malformed::Truncated)]);
    assert_eq!(last(&[0x0c, 0x08, 1]), [Err(Malformed::Group)]);
    assert_eq!(last(&[0x08, 1, 0x07]), [Ok((1, Value::Varint(1))), Err(Malformed::Key)]);
}
