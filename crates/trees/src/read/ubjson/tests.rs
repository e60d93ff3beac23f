use super::*;
use crate::Limits;

fn budget() -> Budget {
    Budget::new(&Limits::default(), 1000)
}

fn read<T>(bytes: &[u8], read: impl FnOnce(&mut Ubjson<'_>) -> Result<T, Error>) -> Option<T> {
    let mut file = bytes;
    let source = Source::new(&mut file, bytes.len() as u64, &mut budget()).expect("memory");
    read(&mut Ubjson::new(source)).ok()
}

fn numbers<T: Number>(bytes: &[u8]) -> Option<Vec<T>> {
    read(bytes, |document| {
        let mut numbers = Vec::new();
        document.numbers(&mut numbers, &mut budget())?;
        Ok(numbers)
    })
}

#[test]
fn arrays_of_every_type() {
    assert_eq!(numbers(b"[$i#U\x02\x01\xFF"), Some(vec![1, -1]));
    assert_eq!(numbers(b"[$U#i\x02\x01\xFF"), Some(vec![1, 255]));
    assert_eq!(numbers(b"[$I#i\x01\xFF\xFE"), Some(vec![-2]));
    assert_eq!(numbers(b"[$l#L\0\0\0\0\0\0\0\x01\x80\0\0\0"), Some(vec![i32::MIN]));
    assert_eq!(numbers(b"[$L#i\x01\0\0\0\0\0\0\x01\0"), Some(vec![256_u64]));
    assert_eq!(numbers(b"[$d#i\x01\x3F\x80\0\0"), Some(vec![1.0_f32]));
    assert_eq!(numbers(b"[$D#i\x01\x3F\xF8\0\0\0\0\0\0"), Some(vec![1.5_f32]));
    assert_eq!(numbers(b"[i\x01NTU\xFF]"), Some(vec![1_u8, 1, 255]));
    assert_eq!(numbers(b"[#i\x02d\x3F\x80\0\0F"), Some(vec![1.0_f32, 0.0]));
    assert_eq!(numbers::<u8>(b"[]"), Some(vec![]));
}

#[test]
fn wrong_arrays_are_refused() {
    let wrong: [&[u8]; 9] = [
        b"[$i#i\x02\x01",
        b"[$i#i\xFF\x01",
        b"[$S#i\x01\x01",
        b"[$i\x01",
        b"[i",
        b"[#i\x7Fi\x01",
        b"[S]",
        b"i\x01",
        b"[$d#i\x01\x3F\x80\0\0",
    ];
    for bytes in wrong {
        assert_eq!(numbers::<u8>(bytes), None, "{bytes:?}");
    }
}

#[test]
fn values_are_skipped_as_a_whole() {
    let values: [&[u8]; 12] = [
        b"{i\x01ai\x07}",
        b"[$d#i\x02\0\0\0\0\0\0\0\0",
        b"[#i\x02ZZ",
        b"[[]i\x01]",
        b"Si\x02ab",
        b"T",
        b"Z",
        b"C]",
        b"Hi\x021]",
        b"D\0\0\0\0\0\0\0\0",
        b"I]]",
        b"NF",
    ];
    for value in values {
        let bytes = [b"[".as_slice(), value, b"i\x07]"].concat();
        let mut last = Vec::new();
        let done = read(&bytes, |document| {
            let mut first = true;
            document.array(&mut |document| match std::mem::replace(&mut first, false) {
                true => document.skip(),
                false => {
                    let marker = document.marker()?;
                    document.scalar::<u8>(marker).map(|number| last.push(number))
                }
            })
        });
        assert!(done.is_some() && last == [7], "{value:?}");
    }
}
