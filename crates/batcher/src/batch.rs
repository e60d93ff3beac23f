//! Runs the calls of a batch as one, and gives each its part of the outputs.

use std::pin::pin;

use futures::future::{Either, join_all, select};
use outrigger_core::Tensor;
use outrigger_run::{Call, RunError, StageTimes};
use tokio::time::Instant;

use crate::{batcher::Version, merge, queue::Member};

/// Runs calls of one form. A run that may have failed because of one of its calls is made again for
/// each half of them, so that with `n` calls of which one is at fault there are at most
/// `2 * log2(n) + 1` runs.
pub(crate) async fn run(version: &Version, members: Vec<Member>) {
    let mut parts = vec![members];
    while let Some(mut part) = parts.pop() {
        let now = Instant::now();
        part.retain(|member| !member.answer.is_closed() && member.call.deadline > now);
        let divided = match part.len() {
            0 => None,
            1 => {
                alone(version, part.remove(0)).await;
                None
            }
            _ => together(version, part).await,
        };
        if let Some(mut first) = divided {
            version.metrics.divided();
            let second = first.split_off(first.len().div_ceil(2));
            parts.extend([second, first]);
        }
    }
}

/// Runs one call with its own inputs.
async fn alone(version: &Version, member: Member) {
    let Member { call, mut answer, extent } = member;
    version.metrics.runs(1, extent.rows);
    let ended = {
        let gone = pin!(answer.closed());
        match select(version.inner.run(call), gone).await {
            Either::Left((result, _)) => Some(result),
            Either::Right(((), _)) => None,
        }
    };
    if let Some(result) = ended {
        answer.send(result).ok();
    }
}

/// Runs several calls as one. Returns them if their run has to be made again in parts.
async fn together(version: &Version, mut members: Vec<Member>) -> Option<Vec<Member>> {
    let rows: Vec<_> = members.iter().map(|member| member.extent.rows).collect();
    let inputs: Vec<_> = members.iter().map(|member| &member.call.inputs[..]).collect();
    let Ok(_memory) = version.charge(merge::joined_memory(&inputs)) else {
        // Halves take less memory, and single calls none.
        return Some(members);
    };
    let joined = merge::join(&inputs);
    let call = joined_call(&members, joined)?;
    let stages = call.stages.clone();
    version.metrics.runs(members.len(), rows.iter().sum());
    let result = {
        let gone = pin!(join_all(members.iter_mut().map(|member| member.answer.closed())));
        match select(version.inner.run(call), gone).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => return None,
        }
    };
    members.iter().for_each(|member| member.call.stages.add_all(&stages));
    match result {
        Ok(outputs) => match merge::divide(&outputs, &rows) {
            Some(parts) => {
                let answered = members.into_iter().zip(parts);
                answered.for_each(|(member, part)| drop(member.answer.send(Ok(part))));
                None
            }
            None => {
                version.joins_nothing();
                Some(members)
            }
        },
        Err(error) if may_be_of_one(&error) => Some(members),
        Err(error) => {
            for Member { call, answer, .. } in members {
                answer.send(Err(error.for_call(call.inputs))).ok();
            }
            None
        }
    }
}

/// The call for all members. It may take as long as the most patient one waits, and has the headers
/// of the first. Each of them has the times of the whole run's stages, as it waits for all of it.
fn joined_call(members: &[Member], inputs: Vec<Tensor>) -> Option<Call> {
    let first = &members.first()?.call;
    let deadline = members.iter().map(|member| member.call.deadline).max()?;
    let (outputs, headers) = (first.outputs.clone(), first.headers.clone());
    let stages = StageTimes::recorded_for(members.iter().map(|member| &member.call.stages));
    Some(Call { inputs, outputs, deadline, headers, stages })
}

/// True if a run may have failed because of a single one of its calls, or because of their number.
fn may_be_of_one(error: &RunError) -> bool {
    matches!(
        error,
        RunError::Failed { .. }
            | RunError::Refused { .. }
            | RunError::TooLarge { .. }
            | RunError::Answer { .. }
    )
}
