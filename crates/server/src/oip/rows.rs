//! The view `features`: a table with an input for each feature. Each row is a user with one
//! treatment; with the parameter `group_by`, consecutive rows of equal key are one user.
//!
//! The rows become requests of `outrigger.v1`, so that they are packed and checked as any other. The
//! users of a table are answered by one version.

use bytes::Bytes;
use outrigger_core::{Failure, Reason};
use outrigger_feature_table::{Table, tensors};
use outrigger_features::{Arrived, Limits, Meter, Packed};
use outrigger_lifecycle::Lease;
use outrigger_oip::{InferRequest, InferResponse, Tensor};
use outrigger_proto::outrigger::v1::ResponseOptions;
use outrigger_score::Scorer;

use super::version::headers;
use crate::{
    call::Call,
    predict::{Exchange, Scored},
    statistics::Observed,
    trial::Terms,
};

/// The parameter that names the input with the users' keys.
pub(super) const GROUP_BY: &str = "group_by";

/// A request with a table of features.
pub(super) struct Rows<'r> {
    call: &'r Call,
    observed: &'r Observed,
    request: InferRequest,
    /// The memory in bytes that the table takes beside the body.
    memory: u64,
    options: ResponseOptions,
    /// The request of the first user, once it is packed.
    first: Option<Bytes>,
    /// The number of rows of each user, once they are packed.
    rows: Vec<usize>,
}

/// Charges tensors in addition to what they are packed from.
#[derive(Debug)]
struct Beside<'c> {
    call: &'c Call,
    bytes: u64,
}

impl Meter for Beside<'_> {
    fn admit(&self, bytes: u64) -> Result<(), Failure> {
        self.call.charge_work(self.bytes + bytes)
    }

    fn proceed(&self) -> Result<(), Failure> {
        self.call.proceed()
    }
}

impl<'r> Rows<'r> {
    /// Takes the table of a request, which takes `memory` bytes beside its body.
    ///
    /// # Errors
    /// There is no room for its texts.
    pub(super) fn new(
        call: &'r Call,
        observed: &'r Observed,
        request: InferRequest,
        memory: u64,
    ) -> Result<Self, Failure> {
        let memory = memory + super::texts_of(&request.inputs);
        call.charge_work(memory)?;
        let names = request.outputs.iter().map(|output| output.name.to_string());
        let options = ResponseOptions { outputs: names.collect(), ..Default::default() };
        Ok(Self { call, observed, request, memory, options, first: None, rows: Vec::new() })
    }

    fn table<'a>(&'a self, scorer: &Scorer) -> Result<Table<'a>, Failure> {
        let group_by = self.request.parameters.text(GROUP_BY)?;
        Ok(Table::read(&self.request.inputs, group_by, scorer.plan.metadata())?)
    }

    /// The answer to a table without rows; `None` if it has some.
    ///
    /// # Errors
    /// The table does not fit the model.
    pub(super) fn empty(&self, lease: &Lease) -> Result<Option<InferResponse>, Failure> {
        let has_rows = |input: &Tensor| input.shape.first() != Some(&0);
        if self.request.inputs.iter().all(has_rows) || self.table(&lease.scorer)?.rows > 0 {
            return Ok(None);
        }
        let plan = &lease.scorer.plan;
        let outputs = tensors(plan, &self.options.outputs, None, &[])?;
        self.call.set_headers(headers(lease, &Terms::of(self.call)));
        Ok(Some(self.response(lease, outputs)))
    }

    fn response(&self, lease: &Lease, outputs: Vec<Tensor>) -> InferResponse {
        InferResponse {
            model_name: lease.key.name.to_string(),
            model_version: Some(lease.key.digest.to_string()),
            id: self.request.id.clone(),
            outputs,
            ..InferResponse::default()
        }
    }

    /// Checks that the table is within the limits; returns the number of its rows.
    ///
    /// # Errors
    /// It is not, or it does not fit the model.
    pub(super) fn check(&self, scorer: &Scorer) -> Result<usize, Failure> {
        self.within(&scorer.limits_of_rows(), scorer).map(|(table, _)| table.rows)
    }

    /// The table and its encoded size in bytes, if both are within the limits.
    fn within(&self, limits: &Limits, scorer: &Scorer) -> Result<(Table<'_>, usize), Failure> {
        let table = self.table(scorer)?;
        table.check_rows(limits)?;
        // The requests have the names of the features in every row.
        let encoded = table.encoded_size();
        let most = limits.max_tensor_bytes;
        if encoded > most {
            let message = format!("the rows take {encoded} bytes, at most {most} are allowed");
            return Err(Failure::new(Reason::TooLarge, message));
        }
        Ok((table, encoded))
    }

    fn packed(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        let limits = scorer.limits_of_rows();
        let (table, encoded) = self.within(&limits, scorer)?;
        let meter = Beside { call: self.call, bytes: self.memory + encoded as u64 };
        meter.admit(0)?;
        let requests = table.requests()?;
        let messages = requests.messages();
        let packed = scorer.plan.metered(&meter).pack_batch(&messages, &self.options, &limits);
        self.first = messages.first().map(|message| Bytes::copy_from_slice(message));
        self.rows = requests.rows;
        packed
    }
}

impl Exchange for Rows<'_> {
    type Answer = InferResponse;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        let observed = self.observed;
        observed.input(|| self.packed(scorer))
    }

    fn request(&self) -> Option<Arrived> {
        Some(Arrived::of_batch(self.first.as_ref()?, &self.options))
    }

    fn kept(&self) -> u64 {
        self.memory + self.first.as_ref().map_or(0, |first| first.len() as u64)
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<InferResponse, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        let rows: usize = self.rows.iter().sum();
        self.observed.output(rows, || {
            let names = &self.options.outputs;
            let call = Some((packed, outputs));
            let outputs = tensors(&lease.scorer.plan, names, call, &self.rows)?;
            // The tensors, and their encoded form.
            let bytes: usize = outputs.iter().map(|output| output.data.len()).sum();
            self.call.charge_answer(2 * bytes as u64)?;
            self.call.set_headers(headers(lease, terms));
            Ok(self.response(lease, outputs))
        })
    }
}

#[cfg(test)]
mod tests {
    use outrigger_budget::Budget;
    use outrigger_oip::DataType;
    use outrigger_trace::Span;
    use tokio::time::Instant;

    use super::*;
    use crate::{front::Method, held::Held, oip::GRPC, predict::sent};

    #[tokio::test]
    async fn the_inputs_of_a_table_are_charged_until_its_answer() {
        let budget = Budget::new(256 << 20);
        let now = Instant::now();
        let call = Call::begin(&GRPC, Method::Predict, now, now, Span::none());
        call.seat(Held::on(&budget));
        let observed = Observed::unlisted();
        let age = Tensor::new("age", DataType::Fp32, vec![2], Bytes::from_static(&[0; 8]));
        let inputs = vec![age.expect("a tensor")];
        let request = InferRequest { inputs, ..InferRequest::default() };
        let mut rows = Rows::new(&call, &observed, request, 1000).expect("there is room");
        assert_eq!(budget.requests.used(), 1000);
        // Its requests and tensors are charged beside it while it is packed.
        call.charge_work(5000).expect("there is room");
        rows.first = Some(Bytes::from_static(b"user"));
        sent(&call, &rows);
        assert_eq!(budget.requests.used(), 1004);
        call.held().release_request();
        assert_eq!(budget.requests.used(), 0);
    }
}
