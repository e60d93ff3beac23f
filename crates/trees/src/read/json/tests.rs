use super::*;
use crate::Limits;

/// Reads `text` with `read`, from a buffer that ends anywhere.
fn read<T>(text: &str, read: impl FnOnce(&mut Json<'_>) -> Result<T, Error>) -> Option<T> {
    let mut file = text.as_bytes();
    let size = file.len() as u64;
    let source = Source::new(&mut file, size, &mut budget()).expect("memory");
    read(&mut Json::new(source)).ok()
}

fn budget() -> Budget {
    Budget::new(&Limits::default(), 1000)
}

fn numbers<T: Number>(text: &str) -> Option<Vec<T>> {
    read(text, |json| {
        let mut numbers = Vec::new();
        json.numbers(&mut numbers, &mut budget())?;
        Ok(numbers)
    })
}

#[test]
fn numbers_of_every_form() {
    let floats = [0.0, -0.0, 1.0, -2.5, 1e-45, 3.402_823_5e38, f32::INFINITY, f32::NEG_INFINITY];
    let text = "[ 0,-0 , 1.0,\n-2.5E0,1E-45,3.4028235e+38,Infinity,-Infinity\t]";
    let bits = |floats: &[f32]| floats.iter().map(|float| float.to_bits()).collect::<Vec<_>>();
    assert_eq!(numbers::<f32>(text).map(|read| bits(&read)), Some(bits(&floats)));
    assert!(numbers::<f32>("[NaN]").is_some_and(|read| read[0].is_nan()));
    // Halfway between two numbers in f32, and a little more.
    assert_eq!(numbers("[16777217, 16777217.001]"), Some(vec![16_777_216.0_f32, 16_777_218.0]));
    assert_eq!(numbers("[-2147483648,2147483647]"), Some(vec![i32::MIN, i32::MAX]));
    assert_eq!(numbers("[true,false,255]"), Some(vec![1_u8, 0, 255]));
    assert_eq!(numbers::<i32>("[]"), Some(vec![]));
    for wrong in ["[256]", "[-1]", "[1.0]", "[1e3]", "[null]", "[,1]", "[1,]", "[1 2]", "[1"] {
        assert_eq!(numbers::<u8>(wrong), None, "{wrong}");
    }
    let long = format!("[{}]", "1".repeat(NUMBER + 1));
    assert!(numbers::<f32>(&long).is_none());
}

#[test]
fn strings_with_escapes() {
    let string = |text| read(text, |json| json.string());
    let text = r#" "a\"\\\/\n\u00e4\ud83d\ude00\ud800 länge" "#;
    assert_eq!(string(text).as_deref(), Some("a\"\\/\nä😀\u{FFFD} länge"));
    for wrong in ["\"a", "a", "\"\\x\"", "\"\\u12g4\"", "\"\\u12", "\"\\"] {
        assert_eq!(string(wrong), None, "{wrong}");
    }
}

#[test]
fn values_are_skipped_as_a_whole() {
    let values = [
        "{}",
        "[[1,\"]\"],{\"a\":\"}\\\"\"}]",
        "\"a\\\"b\"",
        "null",
        "true",
        "-1.5e3",
        "[NaN]",
        "\"\\\\\"",
    ];
    for value in values {
        let text = format!("[{value}, 7]");
        let mut last = Vec::new();
        let done = read(&text, |json| {
            let mut first = true;
            json.array(&mut |json| match std::mem::replace(&mut first, false) {
                true => json.skip(),
                false => json.number::<u8>().map(|number| last.push(number)),
            })
        });
        assert!(done.is_some() && last == [7], "{text}");
    }
    // Long enough that the buffer ends within it, also behind each backslash.
    for filler in 0..3 {
        let text = format!("[\"{}{}\"]", "a".repeat(filler), "\\\"".repeat(50_000));
        assert!(read(&text, |json| json.skip()).is_some());
    }
    for wrong in ["[", "{\"a\":", "\"a", "nul", "what"] {
        assert!(read(wrong, |json| json.skip()).is_none(), "{wrong}");
    }
}
