//! One user's response as JSON, written from the output tensors.

use outrigger_json::writer::{Object, array, integer, number, put};
use outrigger_proto::outrigger::v1::{Degraded, ServedModel};

use super::{OutputValues, Response};
use crate::{
    json::writer::{ANSWER, INTEGER, NUMBER, ROW, error_room, write_error, write_model},
    metadata::{Output, OutputKind},
};

impl Response<'_> {
    /// About as many bytes as the JSON has, and at least so many if its texts need no escapes.
    pub(in crate::answer) fn json_room(&self) -> usize {
        let ids = self.user.ids.as_ref().map_or(0, |ids| ids.size());
        let errors: usize = self.errors.iter().map(error_room).sum();
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
        if !self.errors.is_empty() {
            array(self.errors.iter(), answer.key("treatment_errors"), write_error);
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
            let out = object.named(&list.output.name);
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
