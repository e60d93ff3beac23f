//! One user's `PredictResponse`, measured and written.

mod json;

use std::{borrow::Cow, collections::BTreeMap};

use bytes::BufMut;
use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::TreatmentError;
use prost::encoding::{WireType, encode_key, encoded_len_varint, message};
use smallvec::SmallVec;

use super::{
    output::{OutputValues, Outputs},
    wire,
};
use crate::{
    metadata::{Output, OutputKind},
    packed::UserRows,
};

/// The response to one user.
#[derive(Debug)]
pub(super) struct Response<'a> {
    model: &'a [u8],
    /// The encoded `Degraded`, which gives the reason why the response differs from the
    /// one requested; empty if it does not.
    pub(super) degraded: &'a [u8],
    user: &'a UserRows,
    /// The treatments left out, in the order of the request.
    errors: Cow<'a, [TreatmentError]>,
    /// The outputs asked for, the score first.
    lists: SmallVec<[OutputValues<'a>; 1]>,
    /// The rows to return, best first; `None` for all of them as they stand.
    order: Option<Vec<u32>>,
    /// The rows' positions in the request; empty if the response does not list them.
    indices: Vec<u32>,
    /// Bytes of the encoded `indices`.
    indices_len: usize,
    /// Bytes of the ids and indices in the `ScoreList` of a `per_treatment` output: the
    /// same for all.
    labels_len: usize,
}

impl<'a> Response<'a> {
    /// Checks the values of the user at `index`, ranks the rows and measures the
    /// response.
    ///
    /// # Errors
    /// SCORES_INVALID: a value is not finite, and its treatment cannot be left out.
    pub(super) fn new(
        outputs: &Outputs<'a>,
        index: usize,
        user: &'a UserRows,
        model: &'a [u8],
    ) -> Result<Self, Failure> {
        let list = |output: &usize| outputs.values(*output, (index, user.kept()), user.skip);
        let lists: SmallVec<[_; 1]> =
            user.outputs.iter().map(list).collect::<Result<_, Failure>>()?;
        let left_out: BTreeMap<u32, String> = match user.skip {
            true => lists.iter().rev().flat_map(OutputValues::left_out).collect(),
            false => BTreeMap::new(),
        };
        let is_kept = |row: &u32| !left_out.contains_key(row);
        let order = match (user.top_k, left_out.is_empty()) {
            (0, true) => None,
            (0, false) => Some((0..).take(user.kept()).filter(is_kept).collect()),
            (top_k, true) => Some(lists[0].best(top_k)),
            (top_k, false) => {
                let best = lists[0].best(user.kept()).into_iter();
                Some(best.filter(is_kept).take(top_k).collect())
            }
        };
        let errors = errors(user, left_out);
        let indices = indices(user, order.as_deref());
        let indices_len = indices.iter().map(|index| encoded_len_varint((*index).into())).sum();
        let mut response = Self {
            model,
            degraded: &[],
            user,
            errors,
            lists,
            order,
            indices,
            indices_len,
            labels_len: 0,
        };
        response.labels_len = response.measure_labels();
        Ok(response)
    }

    /// The number of rows returned.
    fn count(&self) -> usize {
        self.order.as_ref().map_or(self.user.kept(), Vec::len)
    }

    fn measure_labels(&self) -> usize {
        let mut ids_len = 0;
        self.for_each_id(|id| ids_len += wire::bytes_len(2, id.len()));
        ids_len + wire::filled_len(3, self.indices_len)
    }

    /// Bytes of the encoded `PredictResponse`.
    pub(super) fn encoded_len(&self) -> usize {
        let (score, others) = self.scores();
        let score = match score.output.kind {
            OutputKind::Single if is_scalar(score) => SCALAR_LEN,
            OutputKind::Single => SCALAR_LEN + wire::bytes_len(8, self.list_len(score)),
            OutputKind::PerTreatment => wire::bytes_len(3, self.list_len(score)),
        };
        let others = others.iter().map(|list| wire::bytes_len(4, self.entry_len(list)));
        let errors = self.errors.iter().map(|error| message::encoded_len(7, error));
        wire::bytes_len(1, self.model.len())
            + score
            + others.sum::<usize>()
            + wire::filled_len(5, self.user.request_id.len())
            + wire::filled_len(6, self.degraded.len())
            + errors.sum::<usize>()
    }

    /// Writes the encoded `PredictResponse`.
    pub(super) fn encode(&self, out: &mut impl BufMut) {
        wire::put_bytes(1, self.model, out);
        let (score, others) = self.scores();
        match score.output.kind {
            OutputKind::Single => {
                encode_key(2, WireType::ThirtyTwoBit, out);
                let start = 4 * score.output.score_column;
                out.put_slice(&score.floats[start..start + 4]);
            }
            OutputKind::PerTreatment => self.write_list(3, score, out),
        }
        for list in others {
            wire::put_header(4, self.entry_len(list), out);
            wire::put_bytes(1, list.output.name.as_bytes(), out);
            self.write_list(2, list, out);
        }
        wire::put_filled(5, &self.user.request_id, out);
        wire::put_filled_header(6, self.degraded.len(), out);
        out.put_slice(self.degraded);
        for error in &*self.errors {
            message::encode(7, error, out);
        }
        if score.output.kind == OutputKind::Single && !is_scalar(score) {
            self.write_list(8, score, out);
        }
    }

    /// The score and the other outputs, apart.
    fn scores(&self) -> (&OutputValues<'a>, &[OutputValues<'a>]) {
        self.lists.split_first().expect("at least one output is chosen")
    }

    /// Bytes of the `ScoreList` of an output.
    fn list_len(&self, list: &OutputValues<'_>) -> usize {
        let &Output { kind, width, score_column, .. } = list.output;
        let (rows, labels) = match kind {
            OutputKind::Single => (1, 0),
            OutputKind::PerTreatment => (self.count(), self.labels_len),
        };
        let column = if score_column == 0 { 0 } else { wire::int_len(6, score_column as u64) };
        wire::filled_len(1, 4 * width * rows)
            + labels
            + wire::int_len(4, width as u64)
            + wire::filled_len(5, self.integers_len(list))
            + column
    }

    /// Bytes of the encoded integers of an output.
    fn integers_len(&self, list: &OutputValues<'_>) -> usize {
        let mut length = 0;
        self.for_each_integer(list, |integer| length += wire::varint_len(integer));
        length
    }

    /// Calls `visit` with the integers of every returned row, as they are encoded.
    fn for_each_integer(&self, list: &OutputValues<'_>, mut visit: impl FnMut(u64)) {
        let width = list.output.width;
        let mut visit = |integers: &[i64]| integers.iter().for_each(|it| visit(it.cast_unsigned()));
        match &self.order {
            Some(order) if list.output.kind == OutputKind::PerTreatment => {
                let row = |index: &u32| list.integers.chunks_exact(width).nth(*index as usize);
                order.iter().filter_map(row).for_each(visit);
            }
            _ => visit(&list.integers),
        }
    }

    /// Bytes of an entry of the map of outputs: a name and a list.
    fn entry_len(&self, list: &OutputValues<'_>) -> usize {
        wire::bytes_len(1, list.output.name.len()) + wire::bytes_len(2, self.list_len(list))
    }

    /// Writes a `ScoreList` as a field of its message.
    fn write_list(&self, tag: u32, list: &OutputValues<'_>, out: &mut impl BufMut) {
        let &Output { kind, width, score_column, .. } = list.output;
        wire::put_header(tag, self.list_len(list), out);
        match kind {
            OutputKind::Single => wire::put_bytes(1, &list.floats, out),
            OutputKind::PerTreatment => self.write_rows(&list.floats, width, out),
        }
        wire::put_int(4, width as u64, out);
        wire::put_filled_header(5, self.integers_len(list), out);
        self.for_each_integer(list, |integer| wire::put_varint(integer, out));
        if score_column > 0 {
            wire::put_int(6, score_column as u64, out);
        }
    }

    /// Writes the values of the returned rows, of `width` float32 each, and their labels.
    fn write_rows(&self, values: &[u8], width: usize, out: &mut impl BufMut) {
        wire::put_filled_header(1, 4 * width * self.count(), out);
        match &self.order {
            None => out.put_slice(values),
            Some(order) => {
                let size = 4 * width;
                let row = |index: &u32| &values[size * *index as usize..][..size];
                order.iter().for_each(|index| out.put_slice(row(index)));
            }
        }
        self.for_each_id(|id| wire::put_bytes(2, id, out));
        wire::put_filled_header(3, self.indices_len, out);
        self.indices.iter().for_each(|index| wire::put_varint((*index).into(), out));
    }

    /// Calls `visit` with the id of every returned row, if the request asks for ids.
    fn for_each_id(&self, mut visit: impl FnMut(&[u8])) {
        let Some(ids) = &self.user.ids else { return };
        match &self.order {
            None => ids.iter().for_each(visit),
            Some(order) => order.iter().for_each(|row| visit(ids.get(*row as usize))),
        }
    }
}

/// Bytes of a `single` score: its field of a float.
const SCALAR_LEN: usize = 5;

/// True if a float holds all that a `single` output has.
fn is_scalar(list: &OutputValues<'_>) -> bool {
    list.output.width == 1 && list.integers.is_empty()
}

/// The treatments that were left out before the run, and those of rows whose values are not finite.
fn errors(user: &UserRows, rows: BTreeMap<u32, String>) -> Cow<'_, [TreatmentError]> {
    if rows.is_empty() {
        return Cow::Borrowed(&user.errors);
    }
    let positions = user.positions();
    let error = |(row, message): (u32, String)| {
        let id = user.ids.as_ref().map(|ids| ids.get(row as usize)).unwrap_or_default();
        TreatmentError {
            index: positions[row as usize],
            id: String::from_utf8_lossy(id).into_owned(),
            reason: Reason::ScoresInvalid.as_str().to_owned(),
            message,
            feature: String::new(),
        }
    };
    let mut errors: Vec<_> =
        user.errors.iter().cloned().chain(rows.into_iter().map(error)).collect();
    errors.sort_by_key(|error| error.index);
    errors.into()
}

/// The positions in the request of the rows returned; none if they are all of
/// the request's treatments, in order.
fn indices(user: &UserRows, order: Option<&[u32]>) -> Vec<u32> {
    match (order, user.errors.is_empty()) {
        (None, true) => Vec::new(),
        (None, false) => user.positions(),
        (Some(order), true) => order.to_vec(),
        (Some(order), false) => {
            let positions = user.positions();
            order.iter().map(|row| positions[*row as usize]).collect()
        }
    }
}
