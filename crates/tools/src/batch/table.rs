//! The scores of a table of features, packed and checked as those of a request to a server.

use std::sync::Arc;

use outrigger_core::{Code, Failure, Reason};
use outrigger_feature_table::{Table, tensors};
use outrigger_features::{Limits, Packed};
use outrigger_oip::Tensor;
use outrigger_oip_client::{Class, Cut, Request};
use outrigger_proto::outrigger::v1::ResponseOptions;
use outrigger_score::{Flight, Scorer};

use crate::{Error, fetch::blocking};

/// The outputs of a request, or the failure with its class.
type Scored = Result<Vec<Tensor>, (Class, Failure)>;

/// Scores the rows of a request, each of which is a user with one treatment.
pub(super) async fn score(scorer: Scorer, request: &Request) -> Scored {
    // The call's own, so that its end is not taken for that of another call.
    let scorer = Scorer { flight: Arc::new(Flight::default()), ..scorer };
    let limits = scorer.limits_of_rows();
    let class_of = |failure: &Failure| class_of(failure, &scorer, &limits);
    let classed = |failure: Failure| (class_of(&failure), failure);
    let outputs = request.outputs.iter().map(ToString::to_string).collect();
    let options = ResponseOptions { outputs, ..ResponseOptions::default() };
    let (mut packed, rows) = {
        let (scorer, inputs, options) = (scorer.clone(), request.inputs.clone(), options.clone());
        let pack = move || pack(&scorer, &inputs, &options, &limits);
        blocking(pack).await.map_err(failure).map_err(classed)?
    };
    let scored = scorer.score(&mut packed, request.deadline).await.map_err(classed)?;
    let plan = Arc::clone(&scorer.plan);
    let answer = move || tensors(&plan, &options.outputs, Some((&packed, &scored)), &rows);
    blocking(answer).await.map_err(failure).map_err(classed)
}

/// The failure of work on this machine's threads.
fn failure(error: Error) -> Failure {
    match error {
        Error::Failed(failure) => failure,
        other => Failure::new(Reason::Internal, other.to_string()),
    }
}

/// The tensors of the model, and the rows of each user.
fn pack(
    scorer: &Scorer,
    inputs: &[Tensor],
    options: &ResponseOptions,
    limits: &Limits,
) -> Result<(Packed, Vec<usize>), Failure> {
    let table = Table::read(inputs, None, scorer.plan.metadata())?;
    table.check_rows(limits)?;
    let requests = table.requests()?;
    let packed = scorer.plan.pack_batch(&requests.messages(), options, limits)?;
    Ok((packed, requests.rows))
}

/// The class of a failure, which decides about the rows.
fn class_of(failure: &Failure, scorer: &Scorer, limits: &Limits) -> Class {
    match failure.reason {
        Reason::TooManyTreatments => {
            Class::TooLarge(Cut { rows: Some(limits.max_users as u64), bytes: None })
        }
        Reason::TooLarge => Class::TooLarge(Cut::default()),
        Reason::Deadline => Class::Timeout,
        Reason::Overloaded | Reason::MemoryFull => Class::Overloaded,
        Reason::EngineUnavailable if scorer.flight.take_cuts().lost.is_some() => Class::Lost,
        Reason::EngineUnavailable => Class::Unavailable,
        reason if reason.code() == Code::InvalidArgument => Class::Refused,
        _ => Class::Ambiguous,
    }
}
