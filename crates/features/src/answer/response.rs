//! One user's `PredictResponse`, measured and written.

mod json;

use std::borrow::Cow;

use bytes::BufMut;
use outrigger_core::Failure;
use prost::encoding::{WireType, encode_key, encoded_len_varint, message};
use smallvec::SmallVec;

use super::{output::Outputs, rank, wire};
use crate::{metadata::OutputKind, packed::UserRows, plan::Plan};

/// The response to one user.
#[derive(Debug)]
pub(super) struct Response<'a> {
    model: &'a [u8],
    /// The encoded `Degraded`, which gives the reason why the response differs from the
    /// one requested; empty if it does not.
    pub(super) degraded: &'a [u8],
    user: &'a UserRows,
    /// The outputs asked for, the score first.
    lists: SmallVec<[List<'a>; 1]>,
    /// The rows to return, best first; `None` for all of them as they stand.
    order: Option<Vec<u32>>,
    /// The rows' positions in the request; empty if the response does not list them.
    indices: Vec<u32>,
    /// Bytes of the encoded `indices`.
    indices_len: usize,
    /// Bytes of the `ScoreList` of a `per_treatment` output: the same for all.
    list_len: usize,
}

/// The values of one output.
#[derive(Debug)]
struct List<'a> {
    name: &'a str,
    kind: OutputKind,
    /// Little-endian float32, one for each packed treatment or for the user.
    values: Cow<'a, [u8]>,
}

/// The end of every `ScoreList`: its width, which is 1.
const WIDTH: &[u8] = &[4 << 3, 1];
/// Bytes of the `ScoreList` of a `single` output: one value, in a field.
const SINGLE_LEN: usize = 6 + WIDTH.len();

impl<'a> Response<'a> {
    /// Checks the values of the user at `index`, ranks the rows and measures the
    /// response.
    ///
    /// # Errors
    /// SCORES_INVALID: a value is not finite.
    pub(super) fn new(
        plan: &'a Plan,
        outputs: &Outputs<'a>,
        index: usize,
        user: &'a UserRows,
        model: &'a [u8],
    ) -> Result<Self, Failure> {
        let list = |output: &usize| {
            let values = outputs.values(*output, index, user.kept())?;
            let output = &plan.metadata.outputs[*output];
            Ok(List { name: &output.name, kind: output.kind, values })
        };
        let lists: SmallVec<[_; 1]> =
            user.outputs.iter().map(list).collect::<Result<_, Failure>>()?;
        let order = (user.top_k > 0).then(|| rank::best(&lists[0].values, user.top_k));
        let indices = indices(user, order.as_deref());
        let indices_len = indices.iter().map(|index| encoded_len_varint((*index).into())).sum();
        let mut response =
            Self { model, degraded: &[], user, lists, order, indices, indices_len, list_len: 0 };
        response.list_len = response.measure_list();
        Ok(response)
    }

    /// The number of rows returned.
    fn count(&self) -> usize {
        self.order.as_ref().map_or(self.user.kept(), Vec::len)
    }

    fn measure_list(&self) -> usize {
        let mut ids_len = 0;
        self.for_each_id(|id| ids_len += wire::bytes_len(2, id.len()));
        wire::filled_len(1, 4 * self.count())
            + ids_len
            + wire::filled_len(3, self.indices_len)
            + WIDTH.len()
    }

    /// Bytes of the encoded `PredictResponse`.
    pub(super) fn encoded_len(&self) -> usize {
        let (score, others) = self.scores();
        let score = match score.kind {
            OutputKind::Single => 5,
            OutputKind::PerTreatment => wire::bytes_len(3, self.list_len),
        };
        let others = others.iter().map(|list| wire::bytes_len(4, self.entry_len(list)));
        let errors = self.user.errors.iter().map(|error| message::encoded_len(7, error));
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
        match score.kind {
            OutputKind::Single => {
                encode_key(2, WireType::ThirtyTwoBit, out);
                out.put_slice(&score.values);
            }
            OutputKind::PerTreatment => self.write_list(3, score, out),
        }
        for list in others {
            wire::put_header(4, self.entry_len(list), out);
            wire::put_bytes(1, list.name.as_bytes(), out);
            self.write_list(2, list, out);
        }
        wire::put_filled(5, &self.user.request_id, out);
        wire::put_filled_header(6, self.degraded.len(), out);
        out.put_slice(self.degraded);
        for error in &self.user.errors {
            message::encode(7, error, out);
        }
    }

    /// The score and the other outputs, apart.
    fn scores(&self) -> (&List<'a>, &[List<'a>]) {
        self.lists.split_first().expect("at least one output is chosen")
    }

    fn list_len(&self, list: &List<'_>) -> usize {
        match list.kind {
            OutputKind::Single => SINGLE_LEN,
            OutputKind::PerTreatment => self.list_len,
        }
    }

    /// Bytes of an entry of the map of outputs: a name and a list.
    fn entry_len(&self, list: &List<'_>) -> usize {
        wire::bytes_len(1, list.name.len()) + wire::bytes_len(2, self.list_len(list))
    }

    /// Writes a `ScoreList` as a field of its message.
    fn write_list(&self, tag: u32, list: &List<'_>, out: &mut impl BufMut) {
        wire::put_header(tag, self.list_len(list), out);
        match list.kind {
            OutputKind::Single => wire::put_bytes(1, &list.values, out),
            OutputKind::PerTreatment => self.write_rows(&list.values, out),
        }
        out.put_slice(WIDTH);
    }

    fn write_rows(&self, values: &[u8], out: &mut impl BufMut) {
        wire::put_filled_header(1, 4 * self.count(), out);
        match &self.order {
            None => out.put_slice(values),
            Some(order) => {
                let (values, _) = values.as_chunks::<4>();
                order.iter().for_each(|row| out.put_slice(&values[*row as usize]));
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
