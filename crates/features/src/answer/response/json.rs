//! One user's response as JSON, written from the output tensors.

use std::io::Write as _;

use outrigger_proto::outrigger::v1::{Arm, Degraded, ServedModel, TreatmentError};
use serde::Serialize;

use super::{OutputValues, Response};
use crate::metadata::{Output, OutputKind};

/// Bytes of an answer besides its rows, its texts and its errors, and of a row without its id.
const ANSWER: usize = 1 << 10;
const ROW: usize = 64;
/// Bytes of a number, and of an integer, with its comma.
const NUMBER: usize = 16;
const INTEGER: usize = 21;

/// A JSON object while its members are written.
struct Object<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Object<'o> {
    fn open(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { start: out.len(), out }
    }

    /// Writes a key, which needs no escapes; its value is written next.
    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if self.out.len() > self.start {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a member, unless the text is empty.
    fn text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            put(text, self.key(key));
        }
    }

    fn close(self) {
        self.out.push(b'}');
    }
}

/// Writes an array; `item` writes each item.
fn array<T>(
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

fn put(value: impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &value).expect("a vector grows");
}

/// Writes a float32 as the shortest number that reads back as the same float32, in the notation of
/// serde_json for a float64.
fn number(bytes: &[u8; 4], out: &mut Vec<u8>) {
    let value = f32::from_le_bytes(*bytes);
    // Here the notation of the standard library is the same.
    if value == 0.0 || (1e-4..1e12).contains(&value.abs()) {
        return write!(out, "{value:?}").expect("a vector grows");
    }
    put(value.to_string().parse::<f64>().unwrap_or(f64::NAN), out);
}

/// Writes an integer exactly.
fn integer(value: &i64, out: &mut Vec<u8>) {
    put(value, out);
}

impl Response<'_> {
    /// About as many bytes as the JSON has, and at least so many if its texts need no escapes.
    pub(in crate::answer) fn json_room(&self) -> usize {
        let ids = self.user.ids.as_ref().map_or(0, |ids| ids.size());
        let errors: usize = self.user.errors.iter().map(|error| 64 + error_size(error)).sum();
        let names: usize = self.lists.iter().map(|list| list.output.name.len()).sum();
        let number =
            |list: &OutputValues<'_>| if list.integers.is_empty() { NUMBER } else { INTEGER };
        let values = self.lists.iter().map(|list| list.output.width * number(list));
        let others = values.sum::<usize>() * self.count().max(1);
        ANSWER + self.count() * ROW + others + ids + names + errors + self.user.request_id.len()
    }

    /// Writes the JSON: the keys of each object are in alphabetical order, and those without
    /// content are left out.
    pub(in crate::answer) fn write_json(
        &self,
        model: &ServedModel,
        degraded: Option<&Degraded>,
        out: &mut Vec<u8>,
    ) {
        let (score, others) = self.scores();
        let mut answer = Object::open(out);
        if let Some(Degraded { reason, used }) = degraded {
            let mut object = Object::open(answer.key("degraded"));
            put(reason, object.key("reason"));
            put(used, object.key("used"));
            object.close();
        }
        write_model(model, answer.key("model"));
        if !others.is_empty() {
            self.write_outputs(others, answer.key("outputs"));
        }
        answer.text("request_id", &self.user.request_id);
        match score.output.kind {
            OutputKind::Single => write_one(score, answer.key("score")),
            OutputKind::PerTreatment => self.write_scores(score, answer.key("scores")),
        }
        if !self.user.errors.is_empty() {
            array(self.user.errors.iter(), answer.key("treatment_errors"), write_error);
        }
        if score.output.kind == OutputKind::Single && score.output.width > 1 {
            write_user(score, answer.key("values"));
        }
        answer.close();
    }

    fn write_outputs(&self, others: &[OutputValues<'_>], out: &mut Vec<u8>) {
        let mut lists: Vec<_> = others.iter().collect();
        lists.sort_by_key(|list| &list.output.name);
        let mut object = Object::open(out);
        for list in lists {
            let mut name = Vec::new();
            put(&*list.output.name, &mut name);
            let name = String::from_utf8_lossy(&name[1..name.len() - 1]);
            let out = object.key(&name);
            match list.output.kind {
                OutputKind::Single if list.output.width == 1 => write_one(list, out),
                OutputKind::Single => write_user(list, out),
                OutputKind::PerTreatment => self.write_output(list, out),
            }
        }
        object.close();
    }

    /// Writes the values of each row: a number, or a list of several.
    fn write_output(&self, list: &OutputValues<'_>, out: &mut Vec<u8>) {
        let (floats, _) = list.floats.as_chunks();
        match list.integers.as_slice() {
            [] => self.write_rows_of(list.output, floats, number, out),
            integers => self.write_rows_of(list.output, integers, integer, out),
        }
    }

    fn write_rows_of<T>(
        &self,
        output: &Output,
        values: &[T],
        number: impl Fn(&T, &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let width = output.width;
        if width == 1 {
            return array(self.rows(), out, |row, out| number(&values[row], out));
        }
        array(self.rows(), out, |row, out| {
            array(values[width * row..][..width].iter(), out, &number);
        });
    }

    /// Writes an object for each row, with its score.
    fn write_scores(&self, list: &OutputValues<'_>, out: &mut Vec<u8>) {
        let (floats, _) = list.floats.as_chunks();
        match list.integers.as_slice() {
            [] => self.write_scores_of(list.output, floats, number, out),
            integers => self.write_scores_of(list.output, integers, integer, out),
        }
    }

    fn write_scores_of<T>(
        &self,
        output: &Output,
        values: &[T],
        number: impl Fn(&T, &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let width = output.width;
        array(self.rows().enumerate(), out, |(position, row), out| {
            let mut object = Object::open(out);
            let id = self.user.ids.as_ref().map_or(&[][..], |ids| ids.get(row));
            object.text("id", str::from_utf8(id).unwrap_or_default());
            if let Some(index) = self.indices.get(position) {
                put(index, object.key("index"));
            }
            let columns = &values[width * row..][..width];
            number(&columns[output.score_column], object.key("score"));
            if width > 1 {
                array(columns.iter(), object.key("values"), &number);
            }
            object.close();
        });
    }

    /// The rows to return, in order.
    fn rows(&self) -> impl Iterator<Item = usize> {
        let order = self.order.as_deref();
        (0..self.count()).map(move |at| order.map_or(at, |order| order[at] as usize))
    }
}

/// Writes the score of a `single` output.
fn write_one(list: &OutputValues<'_>, out: &mut Vec<u8>) {
    let column = list.output.score_column;
    let (floats, _) = list.floats.as_chunks();
    match (list.integers.get(column), floats.get(column)) {
        (Some(value), _) => integer(value, out),
        (None, Some(value)) => number(value, out),
        (None, None) => put((), out),
    }
}

/// Writes all values of a `single` output.
fn write_user(list: &OutputValues<'_>, out: &mut Vec<u8>) {
    let (floats, _) = list.floats.as_chunks();
    match list.integers.as_slice() {
        [] => array(floats.iter(), out, number),
        integers => array(integers.iter(), out, integer),
    }
}

fn write_model(model: &ServedModel, out: &mut Vec<u8>) {
    let arm = match model.arm() {
        Arm::Unspecified => "",
        Arm::Live => "live",
        Arm::Canary => "canary",
        Arm::Pinned => "pinned",
    };
    let mut object = Object::open(out);
    object.text("arm", arm);
    object.text("digest", &model.digest);
    object.text("name", &model.name);
    object.text("platform_digest", &model.platform_digest);
    object.text("tag", &model.tag);
    object.close();
}

fn error_size(error: &TreatmentError) -> usize {
    error.feature.len() + error.id.len() + error.message.len() + error.reason.len()
}

fn write_error(error: &TreatmentError, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.text("feature", &error.feature);
    object.text("id", &error.id);
    put(error.index, object.key("index"));
    object.text("message", &error.message);
    object.text("reason", &error.reason);
    object.close();
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
