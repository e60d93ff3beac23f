//! Who a span is, as W3C Trace Context writes it.

use std::fmt::{self, Write as _};

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Longer ones may be left out, by the specification.
const LONGEST_STATE: usize = 512;
const SAMPLED: u8 = 1;

/// A span within its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The trace; never all zeros.
    pub trace_id: [u8; 16],
    /// The span; never all zeros.
    pub span_id: [u8; 8],
    /// Whether who made it records it.
    pub sampled: bool,
}

/// What a caller says of the trace that a request is part of.
#[derive(Debug, Clone)]
pub(crate) struct Incoming {
    pub(crate) context: Context,
    traceparent: HeaderValue,
    pub(crate) tracestate: Option<HeaderValue>,
}

impl Incoming {
    /// Reads it from a request's headers; `None` when there is nothing, or nothing
    /// that is valid, so that a trace begins here.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all(&TRACEPARENT).iter();
        let traceparent = all.next().filter(|_| all.next().is_none())?;
        let context = Context::parse(traceparent.as_bytes())?;
        let tracestate = headers.get(&TRACESTATE);
        let tracestate = tracestate.filter(|state| state.len() <= LONGEST_STATE).cloned();
        Some(Self { context, traceparent: traceparent.clone(), tracestate })
    }

    /// The headers as they came.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, self.traceparent.clone());
        if let Some(state) = &self.tracestate {
            headers.insert(TRACESTATE, state.clone());
        }
    }
}

impl Context {
    /// Reads a `traceparent`: `00-<trace>-<span>-<flags>`, of a later version as far
    /// as that is the same.
    fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(55)?;
        let [version, trace_id, span_id, flags] = fields(known)?;
        let [version] = hex(version)?;
        let valid = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|&next| next == b'-'),
        };
        let (trace_id, span_id) = (hex(trace_id)?, hex(span_id)?);
        let [flags] = hex(flags)?;
        let named = trace_id != [0; 16] && span_id != [0; 8];
        (valid && named).then_some(Self { trace_id, span_id, sampled: flags & SAMPLED != 0 })
    }

    pub(crate) fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.to_string()).expect("hexadecimal digits and dashes")
    }
}

/// Its `traceparent`.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (Hex(&self.trace_id), Hex(&self.span_id));
        write!(f, "00-{trace}-{span}-{:02x}", u8::from(self.sampled))
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) struct Hex<'b>(pub(crate) &'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            for digit in [byte >> 4, byte & 0xf] {
                f.write_char(char::from_digit(digit.into(), 16).expect("a digit"))?;
            }
        }
        Ok(())
    }
}

/// The four fields of the 55 bytes that all versions share.
fn fields(text: &[u8]) -> Option<[&[u8]; 4]> {
    let dashes = [2, 35, 52].iter().all(|&at| text[at] == b'-');
    dashes.then(|| [&text[..2], &text[3..35], &text[36..52], &text[53..]])
}

/// Lower-case hexadecimal digits, as the specification wants them.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_alike() {
        let context = Context::parse(GOOD.as_bytes()).unwrap();
        assert!(context.sampled);
        assert_eq!((context.trace_id[0], context.span_id[7]), (0x4b, 0xb7));
        assert_eq!(context.to_string(), GOOD);
        assert_eq!(context.header(), GOOD);
    }

    #[test]
    fn flags_that_are_not_known_do_not_matter() {
        for (flags, sampled) in [("00", false), ("02", false), ("03", true), ("ff", true)] {
            let text = GOOD.replace("-01", &format!("-{flags}"));
            assert_eq!(Context::parse(text.as_bytes()).unwrap().sampled, sampled, "{flags}");
        }
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        let later = GOOD.replacen("00", "cc", 1);
        for (text, valid) in [
            (later.clone(), true),
            (format!("{later}-what"), true),
            (format!("{later}.what"), false),
        ] {
            assert_eq!(Context::parse(text.as_bytes()).is_some(), valid, "{text}");
        }
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            "00".to_owned(),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "ff", 1),
            format!("{GOOD}-"),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros),
            GOOD.replace("00f067aa0ba902b7", &zeros[..16]),
            GOOD.replace('-', "_"),
            GOOD.replace("4bf9", "4bg9"),
            GOOD[..54].to_owned(),
        ] {
            assert_eq!(Context::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn two_parents_are_none_and_a_long_state_is_left_out() {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static(GOOD));
        headers.insert(TRACESTATE, HeaderValue::from_static("a=1"));
        assert_eq!(Incoming::read(&headers).unwrap().tracestate.unwrap(), "a=1");
        headers.insert(TRACESTATE, "a".repeat(LONGEST_STATE + 1).parse().unwrap());
        assert!(Incoming::read(&headers).unwrap().tracestate.is_none());
        headers.append(TRACEPARENT, HeaderValue::from_static(GOOD));
        assert!(Incoming::read(&headers).is_none());
    }
}
