//! The headers that name encodings: `grpc-encoding` and `Content-Encoding`, `grpc-accept-encoding`
//! and `Accept-Encoding`.

use crate::Encoding;

/// The name of no encoding.
const IDENTITY: &str = "identity";
/// The weight of an encoding without one, in thousandths.
const FULL: u16 = 1000;

/// A message whose encoding is unknown, or that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported;

/// The encoding that a message has according to the values of its header; `None` if it has none.
///
/// # Errors
/// The encoding is unknown, or there are several.
pub fn declared<'a>(
    values: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<Encoding>, Unsupported> {
    let mut found = None;
    for value in values {
        for name in elements(std::str::from_utf8(value).map_err(|_| Unsupported)?) {
            if name.eq_ignore_ascii_case(IDENTITY) {
                continue;
            }
            let encoding = Encoding::named(name).ok_or(Unsupported)?;
            if found.replace(encoding).is_some() {
                return Err(Unsupported);
            }
        }
    }
    Ok(found)
}

/// The encoding that the caller likes best according to the values of its header, and among equal
/// ones the cheapest; `None` if it accepts none, or likes none better than no encoding.
pub fn preferred<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Encoding> {
    let mut weights = Weights::default();
    values.filter_map(|value| std::str::from_utf8(value).ok()).for_each(|value| weights.add(value));
    let known = Encoding::ALL.map(|encoding| (weights.of(encoding), encoding));
    let least = weights.identity.unwrap_or_default().max(1);
    // The first of several with the greatest weight.
    let best = known.into_iter().rev().max_by_key(|(weight, _)| *weight)?;
    (best.0 >= least).then_some(best.1)
}

/// The weights of a header in thousandths (RFC 9110, section 12.4.2); `None` for what it does not
/// name.
#[derive(Default)]
struct Weights {
    named: [Option<u16>; Encoding::ALL.len()],
    identity: Option<u16>,
    /// The weight of encodings that it does not name.
    any: Option<u16>,
}

impl Weights {
    fn add(&mut self, value: &str) {
        for element in elements(value) {
            let (name, parameters) = element.split_once(';').unwrap_or((element, ""));
            let (name, weight) = (name.trim(), weight(parameters));
            match Encoding::ALL.iter().position(|it| Encoding::named(name) == Some(*it)) {
                Some(at) => self.named[at] = Some(weight),
                None if name == "*" => self.any = Some(weight),
                None if name.eq_ignore_ascii_case(IDENTITY) => self.identity = Some(weight),
                None => {}
            }
        }
    }

    fn of(&self, encoding: Encoding) -> u16 {
        let at = Encoding::ALL.iter().position(|it| *it == encoding);
        at.and_then(|at| self.named[at]).or(self.any).unwrap_or_default()
    }
}

fn elements(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|element| !element.is_empty())
}

/// The weight in parameters such as `q=0.5`. One that cannot be read counts as 0: a caller that
/// wants no encoding must not get one.
fn weight(parameters: &str) -> u16 {
    let mut values = parameters.split(';').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(value) = values.next() else { return FULL };
    let read = value.parse::<f32>().ok().filter(|value| (0.0..=1.0).contains(value));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    read.map_or(0, |value| (value * f32::from(FULL)).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_one_known_encoding_or_none() {
        let of = |values: &[&str]| declared(values.iter().map(|value| value.as_bytes()));
        for none in [&[][..], &[""], &["identity"], &["identity, ,Identity"]] {
            assert_eq!(of(none), Ok(None), "{none:?}");
        }
        for gzip in [&["gzip"][..], &["GZIP"], &["x-gzip"], &["identity, gzip"], &["", " gzip "]] {
            assert_eq!(of(gzip), Ok(Some(Encoding::Gzip)), "{gzip:?}");
        }
        assert_eq!(of(&["zstd"]), Ok(Some(Encoding::Zstd)));
        assert_eq!(of(&["deflate"]), Ok(Some(Encoding::Deflate)));
        for other in [&["br"][..], &["gzip, gzip"], &["gzip", "zstd"], &["gzip;q=1"], &["lz4"]] {
            assert_eq!(of(other), Err(Unsupported), "{other:?}");
        }
        assert_eq!(declared([&b"\xff"[..]].into_iter()), Err(Unsupported));
    }

    #[test]
    fn the_caller_chooses_by_weight_and_the_cheapest_of_equals_is_taken() {
        let of = |values: &[&str]| preferred(values.iter().map(|value| value.as_bytes()));
        let (gzip, zstd) = (Some(Encoding::Gzip), Some(Encoding::Zstd));
        for (values, expected) in [
            (&[][..], None),
            (&[""], None),
            (&["br, lz4"], None),
            (&["br, deflate"], Some(Encoding::Deflate)),
            (&["identity, deflate, gzip"], gzip),
            (&["gzip"], gzip),
            (&["gzip, zstd"], zstd),
            (&["gzip", "zstd"], zstd),
            (&["gzip;q=1.0, zstd;q=0.5"], gzip),
            (&["zstd;q=0, gzip"], gzip),
            (&["gzip;q=0"], None),
            (&["gzip; Q=0.000, *"], zstd),
            (&["*"], zstd),
            (&["*;q=0"], None),
            (&["*;q=0, gzip"], gzip),
            (&["gzip;q=0.5, identity"], None),
            (&["gzip;q=0.5, identity;q=0.5"], gzip),
            (&["gzip;q=nan, zstd;q=2"], None),
            (&["identity;q=0, *;q=0.001"], zstd),
        ] {
            assert_eq!(of(values), expected, "{values:?}");
        }
    }
}
