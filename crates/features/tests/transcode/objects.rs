//! Users sent as objects, encoded by hand.

use prost_types::{ListValue, Struct, Value, value::Kind};

use super::{
    entropy::Entropy,
    wire::{Style, bytes, field, key, noise},
};

/// Encodes an object; in the odd style its entries come in any order and number of parts.
pub(crate) fn encoded(object: &Struct, style: Style, entropy: &mut Entropy<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut fields: Vec<_> = object.fields.iter().collect();
    if style != Style::Regular && entropy.chance(128) {
        entropy.shuffle(&mut fields);
    }
    for (name, value) in fields {
        if style == Style::Odd && entropy.chance(20) {
            // Another value for the same name, which the later one replaces.
            let other = entry(name, &Kind::BoolValue(true).into(), style, entropy);
            field(&mut out, 1, &other, style, entropy);
        }
        let entry = entry(name, value, style, entropy);
        field(&mut out, 1, &entry, style, entropy);
        noise(&mut out, style, entropy);
    }
    out
}

fn entry(name: &str, value: &Value, style: Style, entropy: &mut Entropy<'_>) -> Vec<u8> {
    let odd = style == Style::Odd && entropy.chance(60);
    let parts: &[u8] = match if odd { entropy.below(5) } else { 0 } {
        1 => b"vk",
        2 => b"okv",
        3 => b"kvv",
        4 => b"bkv",
        _ => b"kv",
    };
    let mut out = Vec::new();
    for part in parts {
        match part {
            b'k' => field(&mut out, 1, name.as_bytes(), style, entropy),
            b'b' => field(&mut out, 1, b"another", style, entropy),
            b'o' => {
                let other = self::value(&entropy.one_of(&OTHERS).into(), style, entropy);
                field(&mut out, 2, &other, style, entropy);
            }
            _ => {
                let value = self::value(value, style, entropy);
                field(&mut out, 2, &value, style, entropy);
            }
        }
        noise(&mut out, style, entropy);
    }
    out
}

/// Values sent before the last one, which replaces them.
const OTHERS: [Kind; 2] = [Kind::NullValue(0), Kind::NumberValue(7.0)];

fn value(value: &Value, style: Style, entropy: &mut Entropy<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    noise(&mut out, style, entropy);
    match &value.kind {
        None => {}
        Some(Kind::NullValue(null)) => out.extend([0x08, *null as u8]),
        Some(Kind::NumberValue(number)) => {
            key(&mut out, 2, 1);
            out.extend(number.to_le_bytes());
        }
        Some(Kind::StringValue(text)) => field(&mut out, 3, text.as_bytes(), style, entropy),
        Some(Kind::BoolValue(flag)) => out.extend([0x20, (*flag).into()]),
        Some(Kind::StructValue(object)) => {
            for part in parts(&object.fields.iter().collect::<Vec<_>>(), style, entropy) {
                let fields = part.iter().map(|(key, value)| ((*key).clone(), (*value).clone()));
                let object = encoded(&Struct { fields: fields.collect() }, style, entropy);
                field(&mut out, 5, &object, style, entropy);
            }
        }
        Some(Kind::ListValue(ListValue { values })) => {
            for part in parts(values, style, entropy) {
                let list = list(part, style, entropy);
                field(&mut out, 6, &list, style, entropy);
            }
        }
    }
    noise(&mut out, style, entropy);
    out
}

fn list(values: &[Value], style: Style, entropy: &mut Entropy<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        let value = self::value(value, style, entropy);
        bytes(&mut out, 1, &value);
        noise(&mut out, style, entropy);
    }
    out
}

/// Some, and the others: both are parts of one message.
fn parts<'v, T>(all: &'v [T], style: Style, entropy: &mut Entropy<'_>) -> Vec<&'v [T]> {
    if style != Style::Odd || !entropy.chance(60) {
        return vec![all];
    }
    let (some, others) = all.split_at(entropy.below(all.len() + 1));
    vec![some, others]
}
