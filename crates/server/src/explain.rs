//! The contributions of features to scores, independent of the front that asks for them.

use outrigger_core::{ContributionSize, Failure, Reason};
use outrigger_features::Packed;
use outrigger_lifecycle::Lease;
use outrigger_proto::outrigger::v1::Contributions;

use crate::call::Call;

/// The most treatments whose contributions one call may ask for: they take far more time than the
/// scores.
const MOST: usize = 100;

/// The most copies of the contributions at a time, beside the answer that is written. An uplift
/// model has those of the rows, of their controls, and of a model or the tensor to return; later the
/// tensor and the message exist.
const COPIES: usize = 3;

/// The contributions of the features to the margins of a packed request. Takes the tensors out of
/// `packed`.
///
/// # Errors
/// The failure of the engine; `CONTRIBUTIONS_UNSUPPORTED` if the model has none, and
/// `TOO_MANY_TREATMENTS`.
pub(crate) async fn contributions(
    call: &Call,
    lease: &Lease,
    packed: &mut Packed,
) -> Result<Contributions, Failure> {
    let scorer = &lease.scorer;
    let size = scorer.contributions()?;
    let rows = scorer.plan.rows(packed);
    if rows > MOST {
        let message = format!(
            "contributions are computed for at most {MOST} treatments, the request has {rows}"
        );
        return Err(Failure::new(Reason::TooManyTreatments, message));
    }
    let written = scorer.plan.contributions_room(packed, size);
    call.charge_answer(memory(rows, size).saturating_add(written) as u64)?;
    let explanation = scorer.explain(packed, call.deadline()).await?;
    scorer.plan.contributions(rows, explanation)
}

/// The bytes that the contributions of rows take at most, beside the answer that is written. The
/// engine computes one row at a time in float64.
fn memory(rows: usize, size: ContributionSize) -> usize {
    let of_row = size.of_row();
    let copies = rows.saturating_mul(of_row).saturating_mul(COPIES * size_of::<f32>());
    let computed = of_row.saturating_mul(size_of::<f64>());
    let ids = size.ids().saturating_mul(size_of::<u64>());
    copies.saturating_add(computed).saturating_add(ids)
}
