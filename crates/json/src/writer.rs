//! JSON that is written without values in between.

use std::io::Write as _;

use serde::Serialize;

/// A JSON object while its members are written.
#[derive(Debug)]
pub struct Object<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Object<'o> {
    /// Begins an object.
    pub fn open(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { start: out.len(), out }
    }

    /// Writes a key, which needs no escapes; its value is written next.
    pub fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if self.out.len() > self.start {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a key that may need escapes; its value is written next.
    pub fn named(&mut self, name: &str) -> &mut Vec<u8> {
        if self.out.len() > self.start {
            self.out.push(b',');
        }
        put(name, self.out);
        self.out.push(b':');
        self.out
    }

    /// Writes a member, unless the text is empty.
    pub fn text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            put(text, self.key(key));
        }
    }

    /// Ends the object.
    pub fn close(self) {
        self.out.push(b'}');
    }
}

/// Writes an array; `item` writes each item.
pub fn array<T>(
    items: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    mut item: impl FnMut(T, &mut Vec<u8>),
) {
    out.push(b'[');
    for (index, value) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        item(value, out);
    }
    out.push(b']');
}

/// Writes a value as serde_json does.
pub fn put(value: impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &value).expect("a vector grows");
}

/// Writes a float32 as the shortest number that reads back as the same float32, in the notation of
/// serde_json for a float64.
pub fn number(bytes: &[u8; 4], out: &mut Vec<u8>) {
    let value = f32::from_le_bytes(*bytes);
    // Here the notation of the standard library is the same.
    if value == 0.0 || (1e-4..1e12).contains(&value.abs()) {
        return write!(out, "{value:?}").expect("a vector grows");
    }
    put(value.to_string().parse::<f64>().unwrap_or(f64::NAN), out);
}

/// Writes an integer exactly.
pub fn integer(value: &i64, out: &mut Vec<u8>) {
    put(value, out);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The number as serde_json writes a float64.
    fn expected(value: f32) -> String {
        let value: f64 = value.to_string().parse().expect("a number");
        serde_json::Value::from(value).to_string()
    }

    fn written(value: f32) -> String {
        let mut out = Vec::new();
        number(&value.to_le_bytes(), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn powers_of_ten_and_their_neighbours_are_written_as_float64() {
        for exponent in -45..=38 {
            let power: f32 = format!("1e{exponent}").parse().expect("a number");
            for value in
                [power, power.next_up(), power.next_down(), -power, 9.99 * power, 308_437.13]
            {
                if value.is_finite() {
                    assert_eq!(written(value), expected(value));
                }
            }
        }
        for value in [0.0, -0.0, f32::MAX, f32::MIN_POSITIVE, f32::EPSILON, 0.1, 16_777_216.0] {
            assert_eq!(written(value), expected(value));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn any_number_is_written_as_float64(bits: u32, near in -1e6..1e6_f32) {
            for value in [f32::from_bits(bits), near] {
                if value.is_finite() {
                    prop_assert_eq!(written(value), expected(value));
                }
            }
        }
    }
}
