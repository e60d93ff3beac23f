//! The parts of a request, located without parsing their content.

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{ModelSelector, ResponseOptions};
use prost::Message;
use smallvec::SmallVec;

use super::{
    Routing,
    prefetch::Prefetch,
    schema::{FEATURES, OBJECT, OPTIONS, SELECTOR},
    stop::refused,
};
use crate::{
    call::Call,
    entries::{Entries, OBJECT_FIELDS, OUTPUTS, check_outputs},
    limits::Limits,
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};

/// The parts of a message field that may be sent several times; usually there is one.
pub(super) type Parts<'a> = SmallVec<[&'a [u8]; 1]>;

/// An encoded `outrigger.v1.PredictRequest` in parts: the fields that decide its route
/// are parsed, the others only located.
#[derive(Debug, Default)]
pub struct Request<'a> {
    pub(super) message: &'a [u8],
    /// The limits that were applied when the request was split.
    pub(crate) limits: Limits,
    /// The message's bytes, if tensors may share them.
    pub(super) shared: Option<&'a Bytes>,
    pub(super) model: Option<ModelSelector>,
    pub(super) request_id: &'a str,
    pub(super) routing_key: &'a str,
    pub(super) user: User<'a>,
    /// Looked-up features of the user, as encoded maps; those of the request take
    /// precedence.
    pub(super) looked_up: &'a [Bytes],
    /// The treatments, up to the limit of a call.
    pub(super) treatments: Vec<&'a [u8]>,
    /// The number of treatments sent.
    pub(super) sent: usize,
    /// The parts of the table.
    pub(super) table: Option<Parts<'a>>,
    pub(super) options: Option<ResponseOptions>,
}

/// The user's features, in either form.
#[derive(Debug)]
pub(super) enum User<'a> {
    /// Parts of one map; none if there is no user.
    Features(Parts<'a>),
    /// Parts of one object, which have been validated.
    Object(Parts<'a>),
}

impl User<'_> {
    fn reborrowed(&self) -> User<'_> {
        match self {
            Self::Features(parts) => User::Features(parts.iter().copied().collect()),
            Self::Object(parts) => User::Object(parts.iter().copied().collect()),
        }
    }
}

impl Default for User<'_> {
    fn default() -> Self {
        Self::Features(Parts::new())
    }
}

/// Adds a part of a message; empty parts are dropped, because there can be very many.
pub(super) fn add_part<'a>(parts: &mut Parts<'a>, part: &'a [u8]) {
    if !part.is_empty() {
        parts.push(part);
    }
}

impl<'a> Request<'a> {
    /// Splits a request into its parts. Tensors may share its bytes, which then stay
    /// allocated as long as the tensor does.
    ///
    /// # Errors
    /// REQUEST_MALFORMED, TOO_MANY_TREATMENTS: the bytes are not a valid message, or have
    /// too many treatments. Errors in features are found when they are packed.
    pub fn read(message: &'a Bytes, limits: &Limits) -> Result<Self, Failure> {
        let scanned = Self::scan(message, limits);
        let request = scanned.map_err(|error| refused([&**message], &Call::new(limits), error))?;
        Ok(Self { shared: Some(message), ..request })
    }

    /// The fields that decide the request's route.
    pub fn routing(&self) -> Routing<'_> {
        let Self { model, request_id, routing_key, .. } = self;
        Routing { model: model.as_ref(), request_id, routing_key }
    }

    /// True if the request asks for the contributions of features.
    pub fn wants_contributions(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.contributions)
    }

    /// The same request without treatments.
    pub(crate) fn user_only(&self) -> Request<'_> {
        let user = self.user.reborrowed();
        Request { message: self.message, limits: self.limits, user, ..Request::default() }
    }

    /// The same request with features that were looked up.
    pub(crate) fn with<'b>(&'b self, looked_up: &'b [Bytes]) -> Request<'b> {
        Request {
            message: self.message,
            limits: self.limits,
            shared: self.shared,
            model: self.model.clone(),
            request_id: self.request_id,
            routing_key: self.routing_key,
            user: self.user.reborrowed(),
            looked_up,
            treatments: self.treatments.clone(),
            sent: self.sent,
            table: self.table.as_ref().map(|parts| parts.iter().copied().collect()),
            options: self.options.clone(),
        }
    }

    /// Locates the parts of a request. Treatments, tables and the user's features are not
    /// parsed.
    pub(super) fn scan(message: &'a [u8], limits: &Limits) -> Result<Self, Malformed> {
        let mut request = Self { message, limits: *limits, ..Self::default() };
        let (mut rest, mut prefetch) = (Reader::new(message), Prefetch::new(message));
        while !rest.is_empty() {
            let (number, wire_type) = match rest.accept(0x32) {
                true => (6, WireType::Bytes),
                false => rest.key()?,
            };
            match number {
                6 => {
                    prefetch.ahead_of(message.len() - rest.rest().len());
                    request.treatment(wire_type, &mut rest)?;
                }
                _ => request.field(number, wire_type, &mut rest)?,
            }
        }
        Ok(request)
    }

    #[inline]
    fn treatment(&mut self, wire_type: WireType, rest: &mut Reader<'a>) -> Result<(), Malformed> {
        let (body, max) = (rest.bytes_field(wire_type)?, self.limits.max_treatments);
        if self.sent == 0 {
            // The messages that follow are assumed to have about the same size.
            let others = rest.rest().len() / (body.len() + 2);
            self.treatments.reserve(max.min(1 + others));
        }
        self.sent += 1;
        if self.sent <= max {
            self.treatments.push(body);
        }
        Ok(())
    }

    fn field(
        &mut self,
        number: u32,
        wire_type: WireType,
        rest: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        match number {
            1 => self.merge_model(rest.bytes_field(wire_type)?)?,
            2 => self.request_id = rest.text_field(wire_type)?,
            3 => self.routing_key = rest.text_field(wire_type)?,
            4 => self.features(rest.bytes_field(wire_type)?),
            5 => self.object(rest.bytes_field(wire_type)?)?,
            7 => add_part(self.table.get_or_insert_default(), rest.bytes_field(wire_type)?),
            9 => self.merge_options(rest.bytes_field(wire_type)?)?,
            _ => rest.skip(number, wire_type, MAX_DEPTH)?,
        }
        Ok(())
    }

    /// Adds features of the user's map. The form sent last wins; parts of the same form
    /// are merged.
    fn features(&mut self, body: &'a [u8]) {
        match &mut self.user {
            User::Features(parts) => add_part(parts, body),
            user => *user = User::Features(Parts::from_slice(&[body])),
        }
    }

    fn object(&mut self, body: &'a [u8]) -> Result<(), Malformed> {
        OBJECT.validate_within(body, MAX_DEPTH - 1, &mut Entries(OBJECT_FIELDS))?;
        if let User::Features(parts) = &self.user {
            // These parts are discarded, but must still be well-formed.
            parts.iter().try_for_each(|part| FEATURES.validate(part, MAX_DEPTH - 1))?;
        }
        match &mut self.user {
            User::Object(parts) => add_part(parts, body),
            user => *user = User::Object(Parts::from_slice(&[body])),
        }
        Ok(())
    }

    fn merge_model(&mut self, body: &[u8]) -> Result<(), Malformed> {
        SELECTOR.validate(body, MAX_DEPTH - 1)?;
        let model = self.model.get_or_insert_default();
        model.merge(body).map_err(|_| Malformed::Truncated)
    }

    fn merge_options(&mut self, body: &'a [u8]) -> Result<(), Malformed> {
        check_outputs(body)?;
        OPTIONS.validate(body, MAX_DEPTH - 1)?;
        let options = self.options.get_or_insert_default();
        options.merge(body).map_err(|_| Malformed::Truncated)?;
        // Options can be sent in many parts.
        Entries(OUTPUTS).take_many(options.outputs.len())
    }
}
