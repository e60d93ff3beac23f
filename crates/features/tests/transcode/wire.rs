//! Messages encoded by hand, in every way that a decoder must accept, and some that it
//! must refuse.

use super::{
    entropy::Entropy,
    models::{Sent, Taste, WORDS},
};

/// The style of the encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// As common libraries encode; the same keys in the same order.
    Regular,
    /// As common libraries encode; keys may be added, removed or reordered.
    Free,
    /// An encoding that the wire format allows but common libraries do not write.
    Odd,
}

pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn key(out: &mut Vec<u8>, number: u32, wire_type: u8) {
    varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

pub(crate) fn bytes(out: &mut Vec<u8>, number: u32, body: &[u8]) {
    key(out, number, 2);
    varint(out, body.len() as u64);
    out.extend_from_slice(body);
}

/// Writes a length-delimited field; its length may be encoded in more bytes than necessary.
pub(crate) fn field(
    out: &mut Vec<u8>,
    number: u32,
    body: &[u8],
    style: Style,
    entropy: &mut Entropy<'_>,
) {
    if style != Style::Odd || !entropy.chance(12) {
        return bytes(out, number, body);
    }
    key(out, number, 2);
    let mut length = Vec::new();
    varint(&mut length, body.len() as u64);
    let last = length.len() - 1;
    length[last] |= 0x80;
    out.extend(length);
    out.extend(vec![0x80; entropy.below(3)]);
    out.push(0);
    out.extend_from_slice(body);
}

/// Sometimes adds an unknown field.
pub(crate) fn noise(out: &mut Vec<u8>, style: Style, entropy: &mut Entropy<'_>) {
    if style != Style::Odd || !entropy.chance(16) {
        return;
    }
    let number = entropy.one_of(&[12, 11, 15, 16, 1000, (1 << 29) - 1]);
    match entropy.below(6) {
        0 => {
            key(out, number, 0);
            varint(out, entropy.u64());
        }
        1 => {
            key(out, number, 1);
            out.extend(entropy.u64().to_le_bytes());
        }
        2 => bytes(out, number, b"whatever"),
        3 => {
            key(out, number, 5);
            out.extend([1, 2, 3, 4]);
        }
        4 => group(out, number, entropy.below(4)),
        // About the maximum depth of nesting, from any place in a request.
        _ if entropy.chance(40) => group(out, number, 92 + entropy.below(10)),
        _ => group(out, number, entropy.below(50)),
    }
}

fn group(out: &mut Vec<u8>, number: u32, depth: usize) {
    for _ in 0..depth {
        key(out, number, 3);
    }
    for _ in 0..depth {
        key(out, number, 4);
    }
}

pub(crate) fn float(any: bool, entropy: &mut Entropy<'_>) -> f32 {
    match entropy.below(if any { 16 } else { 128 }) {
        1 => f32::NAN,
        2 => f32::from_bits(0x7f80_0001),
        13 => f32::INFINITY,
        3 => f32::MAX,
        4 => -0.0,
        5..9 => 1.0,
        9..12 => 0.0,
        12 => f32::from_bits(entropy.u64() as u32),
        _ => f32::from(entropy.byte()) / 8.0,
    }
}

fn integer(entropy: &mut Entropy<'_>) -> i64 {
    match entropy.below(12) {
        0 => i64::MIN,
        1 => 1 << 40,
        2 => -1,
        3..6 => 1,
        6 => 7,
        _ => entropy.byte().into(),
    }
}

fn text(entropy: &mut Entropy<'_>) -> &'static [u8] {
    match entropy.below(255) {
        1 => b"\xff\xfe",
        choice => WORDS[choice % WORDS.len()].as_bytes(),
    }
}

/// The body of a Value.
fn value(sent: &Sent, style: Style, entropy: &mut Entropy<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if style == Style::Odd && entropy.chance(16) {
        kind(&mut out, sent, style, entropy);
    }
    noise(&mut out, style, entropy);
    if !entropy.chance(6) {
        kind(&mut out, sent, style, entropy);
    }
    noise(&mut out, style, entropy);
    out
}

fn kind(out: &mut Vec<u8>, sent: &Sent, style: Style, entropy: &mut Entropy<'_>) {
    let taste = match entropy.chance(4) {
        true => entropy.one_of(&[Taste::Number, Taste::Integer, Taste::Flag, Taste::Text]),
        false => sent.taste,
    };
    let length = if entropy.chance(4) { entropy.below(4) } else { sent.draw_length(entropy) };
    if matches!(taste, Taste::Id | Taste::Name) && entropy.chance(200) {
        return sparse(out, sent, length, style, entropy);
    }
    let taste = taste.plain();
    if length != 1 || sent.list && entropy.chance(200) || entropy.chance(6) {
        return list(out, sent, taste, length, style, entropy);
    }
    let as_number = entropy.chance(24);
    match taste {
        Taste::Text => field(out, 2, text(entropy), style, entropy),
        Taste::Flag if !as_number => {
            key(out, 4, 0);
            varint(out, entropy.below(3) as u64);
        }
        Taste::Integer if !as_number => {
            key(out, 3, 0);
            varint(out, integer(entropy).cast_unsigned());
        }
        Taste::Number if as_number && entropy.chance(128) => {
            key(out, 3, 0);
            varint(out, integer(entropy).cast_unsigned());
        }
        Taste::Number if as_number => {
            key(out, 5, 1);
            let real: f64 = if entropy.chance(8) { 1e300 } else { float(sent.any, entropy).into() };
            out.extend(real.to_le_bytes());
        }
        _ => {
            key(out, 1, 5);
            out.extend(float(sent.any, entropy).to_le_bytes());
        }
    }
}

pub(crate) fn sparse_id(entropy: &mut Entropy<'_>) -> u64 {
    match entropy.below(6) {
        0 => u64::MAX,
        1 => 1 << 63,
        2 => 7,
        _ => entropy.byte().into(),
    }
}

/// A sparse list of ids or names, nearly always with a weight for each or none.
fn sparse(out: &mut Vec<u8>, sent: &Sent, length: usize, style: Style, entropy: &mut Entropy<'_>) {
    let odd = style == Style::Odd && entropy.chance(60);
    let are_names = (sent.taste == Taste::Name) != entropy.chance(4);
    let mut fields = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..length {
        let mut one = Vec::new();
        match (are_names, odd) {
            (true, _) => {
                bytes(&mut one, 3, text(entropy));
                fields.push(one);
            }
            (false, true) => {
                key(&mut one, 1, 0);
                varint(&mut one, sparse_id(entropy));
                fields.push(one);
            }
            (false, false) => varint(&mut ids, sparse_id(entropy)),
        }
    }
    let weights = match entropy.below(4) {
        0 => 0,
        _ => length + usize::from(entropy.chance(8)),
    };
    let weights: Vec<_> =
        (0..weights).flat_map(|_| float(sent.any, entropy).to_le_bytes()).collect();
    for (number, packed) in [(2, weights), (1, ids)] {
        if !packed.is_empty() {
            let mut one = Vec::new();
            bytes(&mut one, number, &packed);
            fields.insert(0, one);
        }
    }
    if !odd {
        return field(out, 10, &fields.concat(), style, entropy);
    }
    // The fields in any order, in two lists, which are merged.
    entropy.shuffle(&mut fields);
    let (first, second) = fields.split_at(entropy.below(fields.len() + 1));
    for fields in [first, second] {
        let mut body = fields.concat();
        noise(&mut body, style, entropy);
        field(out, 10, &body, style, entropy);
    }
}

fn list(
    out: &mut Vec<u8>,
    sent: &Sent,
    taste: Taste,
    length: usize,
    style: Style,
    entropy: &mut Entropy<'_>,
) {
    let (number, wire_type) = match (taste, entropy.chance(40)) {
        (Taste::Text, _) => (7, 2),
        (Taste::Integer | Taste::Flag, _) => (8, 0),
        (_, false) => (6, 5),
        (_, true) => (9, 1),
    };
    let element = |entropy: &mut Entropy<'_>| match wire_type {
        2 => text(entropy).to_vec(),
        0 => {
            let mut element = Vec::new();
            varint(&mut element, integer(entropy).cast_unsigned());
            element
        }
        1 => f64::from(float(sent.any, entropy)).to_le_bytes().to_vec(),
        _ => float(sent.any, entropy).to_le_bytes().to_vec(),
    };
    let elements: Vec<_> = (0..length).map(|_| element(entropy)).collect();
    let odd = style == Style::Odd && entropy.chance(60);
    // Sends the list in two parts, which are merged.
    let parts = if odd { entropy.below(length + 1) } else { length };
    for elements in [&elements[..parts], &elements[parts..]] {
        let mut body = Vec::new();
        noise(&mut body, style, entropy);
        let unpacked = wire_type == 2 || odd && entropy.chance(128);
        if unpacked {
            for element in elements {
                match wire_type {
                    2 => bytes(&mut body, 1, element),
                    _ => {
                        key(&mut body, 1, wire_type);
                        body.extend(element);
                    }
                }
            }
        } else if !elements.is_empty() {
            bytes(&mut body, 1, &elements.concat());
        }
        if odd || !elements.is_empty() || length == 0 {
            field(out, number, &body, style, entropy);
        }
        if !odd {
            break;
        }
    }
}

/// The body of a map entry.
fn entry(sent: &Sent, style: Style, entropy: &mut Entropy<'_>) -> Vec<u8> {
    let (mut out, name) = (Vec::new(), sent.name.as_bytes());
    let odd = style == Style::Odd && entropy.chance(40);
    let parts: &[u8] = match if odd { entropy.below(8) } else { 0 } {
        1 => b"vk",
        2 => b"k",
        3 => b"v",
        4 => b"kvk",
        5 => b"kvv",
        6 => b"bkv",
        7 => b"",
        _ => b"kv",
    };
    for part in parts {
        match part {
            b'k' => field(&mut out, 1, name, style, entropy),
            b'b' => field(&mut out, 1, text(entropy), style, entropy),
            _ => {
                let value = value(sent, style, entropy);
                field(&mut out, 2, &value, style, entropy);
            }
        }
        noise(&mut out, style, entropy);
    }
    out
}

/// Map entries for an entity's features, as fields of a number.
pub(crate) fn entries(
    number: u32,
    features: &[Sent],
    style: Style,
    entropy: &mut Entropy<'_>,
) -> Vec<Vec<u8>> {
    let mut sent: Vec<_> = features.to_vec();
    for name in ["unknown", "abcf", "", "a_feature_with_a_long_name_3"] {
        if entropy.chance(if style == Style::Regular { 8 } else { 24 }) {
            let (name, taste) = (name.into(), Taste::Number);
            sent.push(Sent { name, length: 1, list: false, taste, any: false });
        }
    }
    if style != Style::Regular {
        sent.retain(|_| !entropy.chance(12));
        if entropy.chance(128) {
            entropy.shuffle(&mut sent);
        }
        if entropy.chance(40) && !sent.is_empty() {
            sent.push(entropy.one_of(&sent));
        }
    }
    let entry = |sent: &Sent| {
        let (mut out, body) = (Vec::new(), entry(sent, style, entropy));
        field(&mut out, number, &body, style, entropy);
        noise(&mut out, style, entropy);
        out
    };
    sent.iter().map(entry).collect()
}
