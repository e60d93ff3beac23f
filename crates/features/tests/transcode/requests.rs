//! Requests of any shape, encoded by hand.

use outrigger_features::{Metadata, metadata::Entity};
use outrigger_proto::outrigger::v1::{
    IntegerColumn, Matrix, ModelSelector, NumberColumn, ResponseOptions, SparseColumn, TextColumn,
    TreatmentTable,
};
use prost::Message;
use prost_types::{ListValue, Struct, Value, value::Kind};

use super::{
    entropy::Entropy,
    models::{self, Sent, Taste, WORDS},
    objects,
    wire::{Style, bytes, entries, float, noise, sparse_id},
};

/// An encoded request, nearly always a valid message.
pub(crate) fn request(metadata: &Metadata, batch: bool, entropy: &mut Entropy<'_>) -> Vec<u8> {
    let style = entropy.one_of(&[Style::Regular, Style::Free, Style::Odd]);
    let mut fields = Vec::new();
    fields.extend(user(metadata, style, entropy));
    let treatments = models::features(metadata, Entity::Treatment);
    match entropy.below(8) {
        1 | 2 => fields.extend(table(&treatments, style, entropy)),
        3 if style == Style::Odd => {
            fields.extend(table(&treatments, style, entropy));
            fields.extend(key_values(&treatments, style, entropy));
        }
        _ => fields.extend(key_values(&treatments, style, entropy)),
    }
    fields.extend(head(batch, style, entropy));
    if style == Style::Odd && entropy.chance(60) {
        entropy.shuffle(&mut fields);
    }
    fields.concat()
}

fn wrap(number: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, number, body);
    out
}

/// Model, ids, options.
fn head(batch: bool, style: Style, entropy: &mut Entropy<'_>) -> Vec<Vec<u8>> {
    let mut fields = Vec::new();
    if !batch || entropy.chance(4) {
        let model = ModelSelector { name: "m".into(), version: None };
        fields.push(wrap(1, &model.encode_to_vec()));
    }
    fields.push(wrap(2, b"request-1"));
    fields.push(wrap(3, b"user-1"));
    if (!batch && entropy.chance(128)) || entropy.chance(4) {
        fields.push(wrap(9, &options(entropy).encode_to_vec()));
    }
    if style == Style::Odd && entropy.chance(30) {
        fields.push(wrap(9, &options(entropy).encode_to_vec()));
    }
    let mut unknown = Vec::new();
    noise(&mut unknown, style, entropy);
    fields.push(unknown);
    fields
}

pub(crate) fn options(entropy: &mut Entropy<'_>) -> ResponseOptions {
    let outputs =
        entropy.one_of(&[vec![], vec![], vec!["other".to_owned()], vec!["no".to_owned()]]);
    ResponseOptions {
        top_k: if entropy.chance(40) { 2 } else { 0 },
        treatment_ids: entropy.chance(128),
        outputs: if entropy.chance(40) { outputs } else { Vec::new() },
        on_treatment_error: if entropy.chance(4) { 9 } else { entropy.one_of(&[0, 2, 2, 1]) },
        contributions: entropy.chance(4),
    }
}

fn user(metadata: &Metadata, style: Style, entropy: &mut Entropy<'_>) -> Vec<Vec<u8>> {
    let features = models::features(metadata, Entity::User);
    let times = if style == Style::Odd && entropy.chance(60) { 1 + entropy.below(3) } else { 1 };
    let mut one = |_| match entropy.chance(50) {
        true => wrap(5, &objects::encoded(&object(&features, entropy), style, entropy)),
        false => wrap(4, &entries(1, &features, style, entropy).concat()),
    };
    (0..times).map(&mut one).collect()
}

fn object(features: &[Sent], entropy: &mut Entropy<'_>) -> Struct {
    let mut object = Struct::default();
    for sent in features {
        if entropy.chance(16) {
            continue;
        }
        let value = match sent.draw_length(entropy) {
            1 if !sent.list => leaf(sent.taste, entropy),
            length => {
                let values = (0..length).map(|_| leaf(sent.taste, entropy)).collect();
                Value { kind: Some(Kind::ListValue(ListValue { values })) }
            }
        };
        match sent.name.split_once('.') {
            Some((outer, inner)) if entropy.chance(128) => {
                let fields = [(inner.to_owned(), value)].into();
                let inner = Value { kind: Some(Kind::StructValue(Struct { fields })) };
                object.fields.insert(outer.to_owned(), inner);
                if entropy.chance(8) {
                    // Sends the feature a second time by another path, which is an error.
                    object.fields.insert(sent.name.clone(), leaf(sent.taste, entropy));
                }
            }
            _ => drop(object.fields.insert(sent.name.clone(), value)),
        }
    }
    if entropy.chance(30) {
        let depth = 20 + entropy.below(16);
        let deep = (0..depth).fold(leaf(Taste::Number, entropy), |inner, _| Value {
            kind: Some(Kind::StructValue(Struct { fields: [("d".to_owned(), inner)].into() })),
        });
        // A long name is truncated when it is reported.
        let name =
            if depth.is_multiple_of(2) { "deep".into() } else { format!("x{}", "é".repeat(140)) };
        object.fields.insert(name, deep);
    }
    object
}

fn leaf(taste: Taste, entropy: &mut Entropy<'_>) -> Value {
    let kind = match taste.plain() {
        _ if entropy.chance(8) => Kind::NullValue(0),
        Taste::Number => Kind::NumberValue(f64::from(entropy.byte()) / 4.0),
        Taste::Integer => Kind::NumberValue(entropy.byte().into()),
        Taste::Flag => Kind::BoolValue(entropy.chance(128)),
        Taste::Text | Taste::Id | Taste::Name => Kind::StringValue(entropy.one_of(&WORDS).into()),
    };
    Value { kind: Some(kind) }
}

fn key_values(features: &[Sent], style: Style, entropy: &mut Entropy<'_>) -> Vec<Vec<u8>> {
    let count = entropy.below(12);
    let treatment = |_| {
        let mut fields = entries(2, features, style, entropy);
        let ids: [&[u8]; 5] = [b"t1", b"", b"treatment-17", "é".as_bytes(), b"x"];
        if !entropy.chance(40) {
            fields.insert(0, wrap(1, entropy.one_of(&ids)));
        }
        if style == Style::Odd && entropy.chance(30) {
            fields.push(wrap(1, entropy.one_of(&ids)));
        }
        wrap(6, &fields.concat())
    };
    (0..count).map(treatment).collect()
}

/// The parts of a table; usually one.
fn table(features: &[Sent], style: Style, entropy: &mut Entropy<'_>) -> Vec<Vec<u8>> {
    let rows = entropy.below(10);
    let mut features = features.to_vec();
    if entropy.chance(40) {
        let (name, taste) = ("unknown".into(), Taste::Number);
        features.push(Sent { name, length: 1, list: false, taste, any: false });
    }
    if style != Style::Regular {
        entropy.shuffle(&mut features);
        features.retain(|_| !entropy.chance(12));
    }
    let mut table = TreatmentTable { count: rows as u32, ..Default::default() };
    if entropy.chance(128) {
        table.ids = (0..rows).map(id).collect();
    }
    numbers(&mut table, &features, rows, entropy);
    for sent in features.iter().filter(|sent| sent.list || sent.taste != Taste::Number) {
        let (width, row_offsets, values) = layout(sent, rows, entropy);
        let (name, validity) = (sent.name.clone(), bitmap(rows, entropy));
        match sent.taste {
            Taste::Text => {
                let values = (0..values).map(|_| entropy.one_of(&WORDS).to_owned()).collect();
                table.texts.push(TextColumn { name, values, width, validity, row_offsets });
            }
            Taste::Number => {
                let odd = entropy.chance(2).then_some(0);
                let values = (0..values).flat_map(|_| float(sent.any, entropy).to_le_bytes());
                let values = values.chain(odd).collect();
                table.lists.push(NumberColumn { name, values, width, validity, row_offsets });
            }
            Taste::Integer | Taste::Flag => {
                let values = (0..values).map(|_| i64::from(entropy.below(3) as u8)).collect();
                table.integers.push(IntegerColumn { name, values, width, validity, row_offsets });
            }
            Taste::Id | Taste::Name => {
                let (ids, names, weights) = weighted(sent, values, entropy);
                let column =
                    SparseColumn { name, ids, names, weights, width, validity, row_offsets };
                table.sparse.push(column);
            }
        }
    }
    let encoded = table.encode_to_vec();
    let mut parts = vec![wrap(7, &encoded)];
    if style == Style::Odd && entropy.chance(30) {
        let count = TreatmentTable { count: rows as u32, ..Default::default() };
        let mut extra = count.encode_to_vec();
        noise(&mut extra, style, entropy);
        parts.push(wrap(7, &extra));
    }
    parts
}

/// The ids, the names and the weights of a sparse column with this number of values; nearly always
/// right.
fn weighted(
    sent: &Sent,
    values: usize,
    entropy: &mut Entropy<'_>,
) -> (Vec<u64>, Vec<String>, Vec<u8>) {
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    let are_names = (sent.taste == Taste::Name) != entropy.chance(4);
    for _ in 0..values {
        match are_names {
            true => names.push(entropy.one_of(&WORDS).to_owned()),
            false => ids.push(sparse_id(entropy)),
        }
    }
    if entropy.chance(2) {
        names.push("more".to_owned());
    }
    let weights = match entropy.below(4) {
        0 => 0,
        _ => values + usize::from(entropy.chance(2)),
    };
    let weights = (0..weights).flat_map(|_| float(sent.any, entropy).to_le_bytes()).collect();
    (ids, names, weights)
}

/// The width or the row offsets of a column, and the number of its values; nearly always right.
fn layout(sent: &Sent, rows: usize, entropy: &mut Entropy<'_>) -> (u32, Vec<u32>, usize) {
    let wrong = usize::from(entropy.chance(2));
    if !sent.list || entropy.chance(60) {
        return (sent.length as u32, Vec::new(), rows * sent.length + wrong);
    }
    let mut offsets = vec![0];
    for row in 0..rows {
        offsets.push(offsets[row] + sent.draw_length(entropy) as u32);
    }
    let values = offsets[rows] as usize + wrong;
    if entropy.chance(4) {
        let at = entropy.below(offsets.len());
        offsets[at] = entropy.below(4) as u32;
    }
    if entropy.chance(2) {
        offsets.push(offsets[rows]);
    }
    (u32::from(entropy.chance(2)), offsets, values)
}

/// Usually short ids; some are long enough that their length takes more bytes.
fn id(row: usize) -> String {
    match row {
        5 => String::new(),
        7 => "é".repeat(70),
        8 => "long".repeat(40),
        _ => format!("t{row}"),
    }
}

fn numbers(table: &mut TreatmentTable, features: &[Sent], rows: usize, entropy: &mut Entropy<'_>) {
    let numbers = features.iter().filter(|sent| sent.taste == Taste::Number && !sent.list);
    let numbers: Vec<_> = numbers.collect();
    let mut values = Vec::new();
    for _ in 0..rows {
        for sent in &numbers {
            (0..sent.length).for_each(|_| values.extend(float(sent.any, entropy).to_le_bytes()));
        }
    }
    if entropy.chance(4) {
        values.push(0);
    }
    let mut widths: Vec<_> = numbers.iter().map(|sent| sent.length as u32).collect();
    if widths.iter().all(|width| *width == 1) && entropy.chance(128) || entropy.chance(4) {
        widths.clear();
    }
    table.numbers = Some(Matrix {
        names: numbers.iter().map(|sent| sent.name.clone()).collect(),
        validity: bitmap(rows * numbers.len(), entropy).into(),
        values: values.into(),
        widths,
    });
}

/// Usually no bitmap, which means that no value is absent.
fn bitmap(bits: usize, entropy: &mut Entropy<'_>) -> Vec<u8> {
    if !entropy.chance(40) {
        return Vec::new();
    }
    (0..bits.div_ceil(8)).map(|_| entropy.byte() | entropy.byte()).collect()
}

/// Changes, inserts or removes bytes.
pub(crate) fn damage(request: &mut Vec<u8>, entropy: &mut Entropy<'_>) {
    for _ in 0..1 + entropy.below(3) {
        let at = entropy.u64() as usize % (request.len() + 1);
        match entropy.below(4) {
            0 => request.truncate(at),
            1 => request.insert(at, entropy.one_of(&[0, 0x80, 0xff, 1, 0x0b, 0x0c])),
            _ if at == request.len() => request.extend([0xff; 10]),
            2 => request[at] = entropy.byte(),
            _ => request[at] ^= 1 << entropy.below(8),
        }
    }
}
