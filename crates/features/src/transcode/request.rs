//! The parts of a request, found without reading what is in them.

use outrigger_proto::outrigger::v1::ResponseOptions;
use prost::Message;
use smallvec::SmallVec;

use super::{
    schema::{FEATURES, OBJECT, OPTIONS, SELECTOR},
    wire::{MAX_DEPTH, Malformed, Reader, WireType},
};

/// The parts of a message that may be sent in several: mostly one.
pub(super) type Parts<'a> = SmallVec<[&'a [u8]; 1]>;

/// A request in parts.
#[derive(Debug, Default)]
pub(super) struct Request<'a> {
    pub(super) request_id: &'a str,
    pub(super) has_model: bool,
    pub(super) user: User<'a>,
    /// The treatments, at most one more than a call may have.
    pub(super) treatments: Vec<&'a [u8]>,
    /// How many there are.
    pub(super) sent: usize,
    /// The parts of the table.
    pub(super) table: Option<Parts<'a>>,
    pub(super) options: Option<ResponseOptions>,
}

/// The user's features, in whichever form.
#[derive(Debug)]
pub(super) enum User<'a> {
    /// Parts of one map; none if there is no user.
    Features(Parts<'a>),
    /// Parts of one object, which have been validated.
    Object(Parts<'a>),
}

impl Default for User<'_> {
    fn default() -> Self {
        Self::Features(Parts::new())
    }
}

/// How many treatments there are, up to where the bytes are no message.
pub(super) fn count_treatments(message: &[u8]) -> usize {
    let (mut rest, mut count) = (Reader::new(message), 0);
    while let Ok((number, wire_type)) = rest.key() {
        if rest.skip(number, wire_type, MAX_DEPTH).is_err() {
            break;
        }
        count += usize::from(number == 6 && wire_type == WireType::Bytes);
    }
    count
}

/// Adds a part of a message that was sent in several; there can be very many
/// that are empty.
pub(super) fn add_part<'a>(parts: &mut Parts<'a>, part: &'a [u8]) {
    if !part.is_empty() {
        parts.push(part);
    }
}

impl<'a> Request<'a> {
    /// Finds the parts of a request. Treatments, tables and the user's features
    /// are not looked into.
    pub(super) fn scan(message: &'a [u8], max_treatments: usize) -> Result<Self, Malformed> {
        let (mut request, mut rest) = (Self::default(), Reader::new(message));
        while !rest.is_empty() {
            let (number, wire_type) = match rest.accept(0x32) {
                true => (6, WireType::Bytes),
                false => rest.key()?,
            };
            match number {
                6 => request.treatment(wire_type, &mut rest, max_treatments)?,
                _ => request.field(number, wire_type, &mut rest)?,
            }
        }
        Ok(request)
    }

    #[inline]
    fn treatment(
        &mut self,
        wire_type: WireType,
        rest: &mut Reader<'a>,
        max: usize,
    ) -> Result<(), Malformed> {
        let body = rest.bytes_field(wire_type)?;
        if self.sent == 0 {
            // Most of what follows are others of about this size.
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
        const INNER: u32 = MAX_DEPTH - 1;
        match number {
            1 => {
                SELECTOR.validate(rest.bytes_field(wire_type)?, INNER)?;
                self.has_model = true;
            }
            2 => self.request_id = rest.text_field(wire_type)?,
            3 => drop(rest.text_field(wire_type)?),
            4 => self.features(rest.bytes_field(wire_type)?),
            5 => self.object(rest.bytes_field(wire_type)?)?,
            7 => add_part(self.table.get_or_insert_default(), rest.bytes_field(wire_type)?),
            9 => self.merge_options(rest.bytes_field(wire_type)?)?,
            _ => rest.skip(number, wire_type, MAX_DEPTH)?,
        }
        Ok(())
    }

    /// One of two forms is in force, the last sent; parts of one form merge.
    fn features(&mut self, body: &'a [u8]) {
        match &mut self.user {
            User::Features(parts) => add_part(parts, body),
            user => *user = User::Features(Parts::from_slice(&[body])),
        }
    }

    fn object(&mut self, body: &'a [u8]) -> Result<(), Malformed> {
        OBJECT.validate(body, MAX_DEPTH - 1)?;
        if let User::Features(parts) = &self.user {
            // Nobody will read them, but they must be well-formed.
            parts.iter().try_for_each(|part| FEATURES.validate(part, MAX_DEPTH - 1))?;
        }
        match &mut self.user {
            User::Object(parts) => add_part(parts, body),
            user => *user = User::Object(Parts::from_slice(&[body])),
        }
        Ok(())
    }

    fn merge_options(&mut self, body: &'a [u8]) -> Result<(), Malformed> {
        OPTIONS.validate(body, MAX_DEPTH - 1)?;
        let options = self.options.get_or_insert_default();
        options.merge(body).map_err(|_| Malformed::Truncated)
    }
}
