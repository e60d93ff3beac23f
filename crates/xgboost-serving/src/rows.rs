//! Rows of a request: `FeatureScoreVector`s are counted, and then written as the engine's tensors.

use bytes::{BufMut as _, Bytes, BytesMut};
use outrigger_core::{Failure, Reason};
use outrigger_features::GivenInput;
use outrigger_proto::raw::read::{MAX_DEPTH, Malformed, Reader, WireType};

use crate::{Input, invalid};

/// Bytes of an id with its weight, and of the number of ids of a row, in the tensors.
const ID: usize = size_of::<u64>() + size_of::<f32>();
const LENGTH: usize = size_of::<i64>();

/// An encoded `FeatureScoreVector` whose rows have been counted.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    input: Input,
    vector: &'a [u8],
    size: Size,
}

/// The number of rows, and of their ids.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) ids: usize,
}

impl Size {
    /// The size of the tensors in bytes.
    pub(crate) fn bytes(self) -> usize {
        self.ids * ID + self.rows * LENGTH
    }

    /// Adds a row of `input` with so many ids and scores. There may be `most` rows.
    ///
    /// # Errors
    /// `TOO_MANY_TREATMENTS`; `REQUEST_MALFORMED` if it has more or fewer scores than ids.
    pub(crate) fn add(
        &mut self,
        input: Input,
        (ids, scores): (usize, usize),
        most: usize,
    ) -> Result<(), Failure> {
        if self.rows == most {
            let message = format!("{}: more than {most} rows", input.name());
            return Err(Failure::new(Reason::TooManyTreatments, message));
        }
        if ids != scores {
            let field = format!("{}[{}]", input.name(), self.rows);
            return Err(invalid(&field, &format!("has {ids} ids and {scores} scores")));
        }
        self.rows += 1;
        self.ids += ids;
        Ok(())
    }
}

/// The values of a row.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    ids: usize,
    scores: usize,
}

impl<'a> Rows<'a> {
    /// Counts the rows of an input, of which there may be `most`.
    ///
    /// # Errors
    /// `REQUEST_MALFORMED`: it is no such message, or a row has more or fewer scores than ids.
    /// `TOO_MANY_TREATMENTS`.
    pub(crate) fn count(input: Input, vector: &'a [u8], most: usize) -> Result<Self, Failure> {
        let mut size = Size::default();
        let mut rest = Reader::new(vector);
        while let Some(row) = next_row(&mut rest).map_err(unreadable)? {
            let Counts { ids, scores } = Counts::of(row).map_err(unreadable)?;
            size.add(input, (ids, scores), most)?;
        }
        Ok(Self { input, vector, size })
    }

    /// The input that they are for.
    pub(crate) fn input(&self) -> Input {
        self.input
    }

    /// The number of rows and of their ids.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Writes the tensors, with these bits of the ids.
    ///
    /// # Errors
    /// `FEATURE_NOT_FINITE`: the input does not allow a score.
    pub(crate) fn write(self, bits: u64) -> Result<GivenInput, Failure> {
        let mut written = Written::with_room(self.size, bits);
        let mut rest = Reader::new(self.vector);
        while let Some(row) = next_row(&mut rest).map_err(unreadable)? {
            written.row(row).map_err(unreadable)?;
        }
        written.finish(self.input)
    }
}

/// Tensors that are being written.
#[derive(Debug)]
pub(crate) struct Written {
    ids: BytesMut,
    weights: BytesMut,
    lengths: BytesMut,
    /// The bits of an id that count.
    bits: u64,
}

impl Written {
    pub(crate) fn with_room(Size { rows, ids }: Size, bits: u64) -> Self {
        Self {
            bits,
            ids: BytesMut::with_capacity(ids * size_of::<u64>()),
            weights: BytesMut::with_capacity(ids * size_of::<f32>()),
            lengths: BytesMut::with_capacity(rows * LENGTH),
        }
    }

    pub(crate) fn put_id(&mut self, id: u64) {
        self.ids.put_u64_le(id & self.bits);
    }

    pub(crate) fn put_weight(&mut self, weight: f32) {
        self.weights.put_f32_le(weight);
    }

    /// Ends a row of so many ids.
    pub(crate) fn put_row(&mut self, ids: usize) {
        self.lengths.put_u64_le(ids as u64);
    }

    fn row(&mut self, row: &[u8]) -> Result<(), Malformed> {
        let before = self.ids.len();
        let Self { ids, weights, bits, .. } = self;
        for_each_field(row, |field| match field {
            Field::Ids(rest, wire_type) => {
                rest.varints_field(wire_type, |id| ids.put_u64_le(id & *bits))
            }
            Field::Scores(bytes) => {
                weights.put_slice(bytes);
                Ok(())
            }
        })?;
        self.put_row((self.ids.len() - before) / size_of::<u64>());
        Ok(())
    }

    /// The tensors of `input`.
    ///
    /// # Errors
    /// `FEATURE_NOT_FINITE`: the input does not allow a weight.
    pub(crate) fn finish(self, input: Input) -> Result<GivenInput, Failure> {
        let weights = self.weights.freeze();
        check(input, &weights)?;
        let (ids, lengths) = (self.ids.freeze(), self.lengths.freeze());
        Ok(GivenInput { tensor: input.name(), ids, weights, lengths })
    }
}

/// Refuses weights that the model cannot score. NaN is a missing value of the trees; XGBoost takes
/// no infinite value.
fn check(input: Input, weights: &Bytes) -> Result<(), Failure> {
    let (weights, _) = weights.as_chunks();
    let mut weights = weights.iter().map(|weight| f32::from_le_bytes(*weight));
    let refused = |weight: &f32| match input {
        Input::Trees => weight.is_infinite(),
        Input::Machine => !weight.is_finite(),
    };
    let Some(weight) = weights.find(refused) else { return Ok(()) };
    let problem = format!("a score is {weight}");
    Err(Failure::of_field(Reason::FeatureNotFinite, input.name(), &problem))
}

/// The failure for a message that does not decode.
pub(crate) fn unreadable(error: Malformed) -> Failure {
    Failure::new(Reason::RequestMalformed, format!("the message cannot be read: {error}"))
}

/// The next `FeatureScore` of a `FeatureScoreVector`.
fn next_row<'a>(rest: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    while !rest.is_empty() {
        match rest.key()? {
            (1, wire_type) => return rest.bytes_field(wire_type).map(Some),
            (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
        }
    }
    Ok(None)
}

/// A field of a `FeatureScore`.
enum Field<'r, 'a> {
    /// Its wire type, and the reader of its value.
    Ids(&'r mut Reader<'a>, WireType),
    /// Little-endian float32.
    Scores(&'a [u8]),
}

fn for_each_field<'a>(
    row: &'a [u8],
    mut visit: impl FnMut(Field<'_, 'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut rest = Reader::new(row);
    while !rest.is_empty() {
        match rest.key()? {
            (1, wire_type) => visit(Field::Ids(&mut rest, wire_type))?,
            (2, wire_type) => {
                let scores = rest.fixed_field(wire_type, WireType::Fixed32, size_of::<f32>())?;
                visit(Field::Scores(scores))?;
            }
            (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
        }
    }
    Ok(())
}

impl Counts {
    fn of(row: &[u8]) -> Result<Self, Malformed> {
        let mut counts = Self::default();
        for_each_field(row, |field| match field {
            Field::Ids(rest, wire_type) => rest.varints_field(wire_type, |_| counts.ids += 1),
            Field::Scores(bytes) => {
                counts.scores += bytes.len() / size_of::<f32>();
                Ok(())
            }
        })?;
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use outrigger_proto::xgboost_serving::{FeatureScore, FeatureScoreVector};
    use prost::Message as _;

    use super::*;

    type Row<'a> = (&'a [u64], &'a [f32]);

    const NONE: Row<'_> = (&[], &[]);

    fn vector(rows: &[Row<'_>]) -> Vec<u8> {
        let row = |(id, score): &Row<'_>| FeatureScore { id: id.to_vec(), score: score.to_vec() };
        FeatureScoreVector { feature_score: rows.iter().map(row).collect() }.encode_to_vec()
    }

    fn read(vector: &[u8]) -> Result<GivenInput, Failure> {
        let rows = Rows::count(Input::Trees, vector, 3)?;
        let size = rows.size().bytes();
        let written = rows.write(u64::MAX)?;
        assert_eq!(size, written.ids.len() + written.weights.len() + written.lengths.len());
        Ok(written)
    }

    fn lengths(input: &GivenInput) -> Vec<i64> {
        let (lengths, _) = input.lengths.as_chunks();
        lengths.iter().map(|length| i64::from_le_bytes(*length)).collect()
    }

    #[test]
    fn rows_become_tensors() {
        let rows: [Row<'_>; 3] =
            [(&[7, u64::MAX, 1 << 32], &[1.0, f32::NAN, 0.0]), NONE, (&[7], &[2.5])];
        let read = read(&vector(&rows)).unwrap();
        assert_eq!(lengths(&read), [3, 0, 1]);
        let ids = rows.iter().flat_map(|(ids, _)| *ids).flat_map(|id| id.to_le_bytes());
        assert!(ids.eq(read.ids.iter().copied()));
        let weights = rows.iter().flat_map(|(_, all)| *all).flat_map(|it| it.to_le_bytes());
        assert!(weights.eq(read.weights.iter().copied()));
    }

    #[test]
    fn values_that_are_not_packed_count_too() {
        // id 5, score 1.0, id 300 and score 2.0, each in a field of its own, and an unknown field.
        let one = 1.0_f32.to_le_bytes();
        let two = 2.0_f32.to_le_bytes();
        let row =
            [&[0x08, 5, 0x15][..], &one, &[0x08, 0xac, 0x02, 0x15], &two, &[0x18, 1]].concat();
        let message = [&[0x0a, row.len() as u8][..], &row].concat();
        let read = read(&message).unwrap();
        assert_eq!(lengths(&read), [2]);
        assert!(read.ids.iter().copied().eq([5_u64, 300].into_iter().flat_map(u64::to_le_bytes)));
    }

    #[test]
    fn rows_that_are_not_whole_are_refused() {
        for (message, reason, problem) in [
            (
                vector(&[(&[1], &[1.0]), (&[1, 2], &[1.0])]),
                Reason::RequestMalformed,
                "[1]: has 2 ids and 1",
            ),
            (vector(&[(&[], &[1.0])]), Reason::RequestMalformed, "[0]: has 0 ids and 1"),
            (vector(&[NONE; 4]), Reason::TooManyTreatments, "more than 3 rows"),
            (vector(&[(&[1], &[f32::INFINITY])]), Reason::FeatureNotFinite, "a score is inf"),
            (vector(&[(&[1], &[f32::NEG_INFINITY])]), Reason::FeatureNotFinite, "-inf"),
            // A row of ten bytes, of which one is there; a list whose length lies; a varint without
            // an end; scores of three bytes.
            (vec![0x0a, 10, 0], Reason::RequestMalformed, "cannot be read"),
            (vec![0x0a, 3, 0x0a, 200, 1], Reason::RequestMalformed, "cannot be read"),
            (vec![0x0a, 3, 0x0a, 1, 0xff], Reason::RequestMalformed, "cannot be read"),
            (vec![0x0a, 5, 0x12, 3, 0, 0, 0], Reason::RequestMalformed, "cannot be read"),
        ] {
            let failure = read(&message).expect_err(problem);
            assert!(failure.message.contains(problem), "{failure}");
            assert_eq!(failure.reason, reason, "{failure}");
        }
    }

    #[test]
    fn nan_is_missing_for_trees_only() {
        let nan = vector(&[(&[1], &[f32::NAN])]);
        let read = |input| Rows::count(input, &nan, 1).unwrap().write(u64::MAX);
        assert!(read(Input::Trees).is_ok());
        assert_eq!(read(Input::Machine).unwrap_err().reason, Reason::FeatureNotFinite);
    }

    #[test]
    fn any_bytes_are_rows_or_an_error() {
        use proptest::prelude::*;
        proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..64))| {
            let theirs = FeatureScoreVector::decode(&bytes[..]);
            let ours = Rows::count(Input::Trees, &bytes, usize::MAX);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok_and(|all| {
                all.feature_score.iter().all(|row| row.id.len() == row.score.len())
            }));
            if let Ok(rows) = ours {
                rows.write(u64::MAX).ok();
            }
        });
    }
}
