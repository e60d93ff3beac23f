//! Cuts a request into smaller ones of fewer rows, and joins their replies.

use std::{mem, ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use outrigger_oip::{DataType, Tensor};

use crate::{Failure, Reply, Request, policy::Cut};

/// The share of a host's limit in bytes that the data of a part take; the rest is for names, shapes
/// and headers.
const SHARE: f64 = 0.9;

/// The parts of a request that a host with this limit takes; half of the rows each if its limit is
/// not known. `None` if the request cannot be cut: it has one row, or inputs without one for each
/// row.
pub(crate) fn cut(request: &Request, cut: Cut) -> Option<Vec<Request>> {
    let rows = usize::try_from(request.rows?).ok()?;
    let is_by_row = |input: &Tensor| {
        input.shape.first().is_some_and(|first| usize::try_from(*first) == Ok(rows))
    };
    if rows < 2 || !request.inputs.iter().all(is_by_row) {
        return None;
    }
    let most = most_rows(request, rows, cut).clamp(1, rows - 1);
    let starts = (0..rows).step_by(most);
    Some(starts.map(|start| request.part(start..rows.min(start + most))).collect())
}

/// The rows of a part.
fn most_rows(request: &Request, rows: usize, cut: Cut) -> usize {
    let size: usize = request.inputs.iter().map(|input| input.data.len()).sum();
    let share = cut.bytes.map(|bytes| bytes as f64 * SHARE / size.max(1) as f64);
    let by_bytes = share.map(|share| (rows as f64 * share) as usize);
    let by_rows = cut.rows.and_then(|rows| usize::try_from(rows).ok());
    match (by_bytes, by_rows) {
        (None, None) => rows / 2,
        (bytes, of_rows) => bytes.unwrap_or(rows).min(of_rows.unwrap_or(rows)),
    }
}

impl Request {
    /// The request for the rows in `range`, with the same data, which are not copied. All inputs
    /// have a row for each of [`rows`](Self::rows).
    ///
    /// # Panics
    /// The request has fewer rows.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let inputs = self.inputs.iter().map(|input| part_of(input, range.clone())).collect();
        Self {
            model: Arc::clone(&self.model),
            version: self.version.clone(),
            inputs,
            outputs: self.outputs.clone(),
            rows: Some(range.len() as u64),
            row_by_row: self.row_by_row,
            deadline: self.deadline,
            headers: self.headers.clone(),
        }
    }
}

/// The rows in `range` of a tensor, whose data are not copied.
///
/// # Panics
/// The tensor has fewer rows, or none.
pub fn part_of(tensor: &Tensor, range: Range<usize>) -> Tensor {
    let mut shape = tensor.shape.clone();
    let rows = shape.first_mut().map_or(0, |rows| mem::replace(rows, range.len() as i64));
    let data = slice(tensor, usize::try_from(rows).unwrap_or_default(), range);
    Tensor { name: tensor.name.clone(), datatype: tensor.datatype, shape, data }
}

/// The data of the rows in `range`, without a copy.
fn slice(input: &Tensor, rows: usize, range: Range<usize>) -> Bytes {
    if input.datatype != DataType::Bytes {
        let row = input.data.len() / rows;
        return input.data.slice(range.start * row..range.end * row);
    }
    let row = input.texts().count() / rows;
    let end_of = |texts: usize| input.texts().take(texts).map(|text| 4 + text.len()).sum::<usize>();
    input.data.slice(end_of(range.start * row)..end_of(range.end * row))
}

/// Joins the replies of the parts of one request.
///
/// # Errors
/// The parts have outputs of other names, types or sizes.
pub(crate) fn join(replies: Vec<Reply>) -> Result<Reply, Failure> {
    let mut replies = replies.into_iter();
    let mut joined = replies.next().ok_or_else(|| Failure::invalid("it has no parts"))?;
    let mut data: Vec<_> =
        joined.outputs.iter_mut().map(|output| vec![mem::take(&mut output.data)]).collect();
    for reply in replies {
        if joined.version != reply.version && joined.changed_from.is_none() {
            joined.changed_from = mem::replace(&mut joined.version, reply.version.clone());
        }
        if reply.outputs.len() != joined.outputs.len() {
            return Err(Failure::invalid("parts of one request have different outputs"));
        }
        for ((whole, data), output) in joined.outputs.iter_mut().zip(&mut data).zip(reply.outputs) {
            let is_like = whole.name == output.name
                && whole.datatype == output.datatype
                && whole.shape.get(1..) == output.shape.get(1..);
            let (true, [first, ..]) = (is_like, &output.shape[..]) else {
                let message = format!("output {} differs between parts", whole.name);
                return Err(Failure::invalid(message));
            };
            whole.shape[0] += first;
            data.push(output.data);
        }
    }
    for (output, data) in joined.outputs.iter_mut().zip(data) {
        output.data = concatenated(&data);
    }
    Ok(joined)
}

fn concatenated(data: &[Bytes]) -> Bytes {
    let mut all = BytesMut::with_capacity(data.iter().map(Bytes::len).sum());
    data.iter().for_each(|part| all.extend_from_slice(part));
    all.freeze()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use tokio::time::Instant;

    use super::*;
    use crate::Form;

    fn tensor(datatype: DataType, shape: &[i64], data: &[u8]) -> Tensor {
        let data = Bytes::copy_from_slice(data);
        Tensor { name: "x".into(), datatype, shape: shape.to_vec(), data }
    }

    fn request(inputs: Vec<Tensor>, rows: u64) -> Request {
        Request {
            model: "m".into(),
            version: None,
            inputs,
            outputs: Vec::new(),
            rows: Some(rows),
            row_by_row: false,
            deadline: Instant::now(),
            headers: HeaderMap::new(),
        }
    }

    fn sizes(request: &Request, rows: Option<u64>, bytes: Option<u64>) -> Vec<u64> {
        let parts = cut(request, Cut { rows, bytes }).expect("parts");
        parts.iter().map(|part| part.rows.expect("rows")).collect()
    }

    #[test]
    fn check_30_a_request_is_cut_to_the_limit_of_the_host() {
        let numbers = request(vec![tensor(DataType::Int8, &[10, 2], &[7; 20])], 10);
        assert_eq!(sizes(&numbers, Some(4), None), [4, 4, 2]);
        assert_eq!(sizes(&numbers, None, Some(10)), [4, 4, 2], "nine tenths of ten bytes");
        assert_eq!(sizes(&numbers, None, None), [5, 5]);
        assert_eq!(sizes(&numbers, Some(99), None), [9, 1], "always smaller than the whole");
        assert_eq!(sizes(&numbers, Some(0), None).len(), 10);
        let one = request(vec![tensor(DataType::Int8, &[1], &[7])], 1);
        assert!(cut(&one, Cut::default()).is_none());
        let other = request(vec![tensor(DataType::Int8, &[3], &[7; 3])], 2);
        assert!(cut(&other, Cut::default()).is_none(), "its input has no row for each row");
    }

    #[test]
    fn parts_have_the_rows_of_the_whole_in_order() {
        let texts = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc\x01\0\0\0d";
        let inputs = vec![
            tensor(DataType::Bytes, &[2, 2], texts),
            tensor(DataType::Uint8, &[2, 3], &[1, 2, 3, 4, 5, 6]),
        ];
        let parts = cut(&request(inputs.clone(), 2), Cut::default()).expect("parts");
        let [first, second] = &parts[..] else { panic!("two parts") };
        assert_eq!(&first.inputs[0].data[..], b"\x01\0\0\0a\0\0\0\0");
        assert_eq!(&second.inputs[1].data[..], [4, 5, 6]);
        let reply = |part: &Request, version: &str| Reply {
            outputs: part.inputs.clone(),
            version: Some(version.to_owned()),
            changed_from: None,
            host: "h".into(),
            form: Form::Grpc,
        };
        let joined = join(vec![reply(first, "1"), reply(second, "2")]).expect("like parts");
        assert_eq!(joined.outputs, inputs);
        assert_eq!(
            (joined.version.as_deref(), joined.changed_from.as_deref()),
            (Some("2"), Some("1"))
        );
        let mut wider = reply(second, "1");
        wider.outputs[1].shape = vec![1, 4];
        assert!(join(vec![reply(first, "1"), wider]).is_err());
    }
}
