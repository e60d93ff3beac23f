use std::cell::Cell;

use outrigger_core::Reason;
use outrigger_proto::outrigger::v1::{PredictRequest, ResponseOptions, predict_request::User};
use prost::Message as _;

use super::*;
use crate::{
    Limits, Packed, Request,
    entries::{OBJECT_FIELDS, STRANGERS, STRANGERS_PER_ROW},
    fixtures::{number, plan, request, treatment, user},
};

/// Records the memory that is asked for, and ends the call after a number of steps.
#[derive(Debug)]
struct Recorded {
    admitted: Cell<u64>,
    most: u64,
    steps: Cell<u32>,
}

impl Recorded {
    fn new(most: u64, steps: u32) -> Self {
        Self { admitted: Cell::new(0), most, steps: Cell::new(steps) }
    }
}

impl Meter for Recorded {
    fn admit(&self, bytes: u64) -> Result<(), Failure> {
        self.admitted.set(self.admitted.get() + bytes);
        match bytes <= self.most {
            true => Ok(()),
            false => Err(Failure::new(Reason::Overloaded, "full")),
        }
    }

    fn proceed(&self) -> Result<(), Failure> {
        let left = self.steps.get().checked_sub(1);
        self.steps.set(left.unwrap_or_default());
        left.map(drop).ok_or_else(|| Failure::new(Reason::Deadline, "over"))
    }
}

fn pack(request: &PredictRequest, meter: &Recorded) -> Result<Packed, Failure> {
    let message = request.encode_to_vec().into();
    let parts = Request::read(&message, &Limits::default())?;
    plan().metered(meter).pack_request(&parts)
}

#[test]
fn tensors_are_admitted_with_their_size() {
    // 20 bytes of user_numeric, 8 of user_segment, 24 of treatment_numeric, 4 of counts.
    let meter = Recorded::new(56, 100);
    pack(&request(&[0.1; 3]), &meter).expect("packs");
    assert_eq!(meter.admitted.get(), 56);
    let refused = pack(&request(&[0.1; 4]), &meter).expect_err("it is larger");
    assert_eq!(refused.reason, Reason::Overloaded);
}

#[test]
fn an_explanation_is_admitted_as_a_multiple_of_its_tensors() {
    let meter = Recorded::new(u64::MAX, 100);
    let message = request(&[0.1; 3]).encode_to_vec();
    plan().metered(&meter).explain(&[&message], &Limits::default()).expect("packs");
    assert_eq!(meter.admitted.get(), 56 * 12);
}

#[test]
fn a_call_whose_time_is_over_is_packed_no_further() {
    let many = PredictRequest {
        // Every other treatment has other features, so that none matches the one before.
        treatments: (0..5000)
            .map(|index| match index % 2 {
                0 => treatment("", [("discount", number(1.0))]),
                _ => treatment("", [("discount", number(1.0)), ("days_live", number(1.0))]),
            })
            .collect(),
        ..request(&[])
    };
    pack(&many, &Recorded::new(u64::MAX, 1000)).expect("packs");
    let refused = pack(&many, &Recorded::new(u64::MAX, 10)).expect_err("over");
    assert_eq!(refused.reason, Reason::Deadline);
}

#[test]
fn features_that_the_model_does_not_name_are_limited_in_number() {
    let with = |count: usize| {
        let mut user = user([("embedding", crate::fixtures::embedding())]);
        if let User::UserFeatures(map) = &mut user {
            let name = |index| (format!("n{index}"), Default::default());
            map.features.extend((0..count).map(name));
        }
        PredictRequest { user: Some(user), ..request(&[0.1]) }
    };
    let most = STRANGERS + STRANGERS_PER_ROW;
    pack(&with(most), &Recorded::new(u64::MAX, 100)).expect("packs");
    let refused = pack(&with(most + 1), &Recorded::new(u64::MAX, 100)).expect_err("too many");
    assert_eq!(refused.reason, Reason::RequestMalformed);
    assert!(refused.message.contains("more entries"), "{refused}");
}

#[test]
fn names_of_outputs_are_limited_in_number() {
    let with = |count: usize| {
        let outputs = vec![String::new(); count];
        let options = ResponseOptions { outputs, ..ResponseOptions::default() };
        PredictRequest { options: Some(options), ..request(&[0.1]) }
    };
    let refused = pack(&with(1025), &Recorded::new(u64::MAX, 100)).expect_err("too many");
    assert!(refused.message.contains("more entries"), "{refused}");
    let unknown = pack(&with(1024), &Recorded::new(u64::MAX, 100)).expect_err("no such output");
    assert!(!unknown.message.contains("more entries"), "{unknown}");
}

#[test]
fn entries_of_an_object_are_limited_in_number_before_they_are_read() {
    let with = |count: usize| {
        let entry = |index| (format!("n{index}"), prost_types::Value::default());
        let fields = (0..count).map(entry).collect();
        let object = User::UserObject(prost_types::Struct { fields });
        PredictRequest { user: Some(object), ..request(&[0.1]) }
    };
    for count in [2 * STRANGERS, OBJECT_FIELDS] {
        let refused = pack(&with(count), &Recorded::new(u64::MAX, 100)).expect_err("too many");
        assert!(refused.message.contains("more entries"), "{refused}");
    }
    let missing = pack(&with(STRANGERS), &Recorded::new(u64::MAX, 100)).expect_err("required");
    assert_eq!(missing.reason, Reason::FeatureMissing, "{missing}");
}
