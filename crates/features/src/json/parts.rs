//! A request split into its parts, which are found without reading what is in them.

use std::ops::Range;

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_json::{Cursor, Odd, Read};

use super::{
    Routing, odd,
    pack::{self, Members, Stop},
    request::{read_model, read_small},
    scan, selector,
};
use crate::{
    call::{Call, Trace},
    limits::{Limits, check_users},
    pack::Metered,
    packed::Packed,
    plan::Plan,
    reader::Node,
    transcode,
    vectors::widest,
};

/// A request in JSON. The fields that decide its route are read; the rest is checked when it is
/// packed.
#[derive(Debug, Clone)]
pub struct Request {
    body: Bytes,
    route: Routing,
    /// `None` if the body may be malformed.
    members: Option<Members>,
}

impl Request {
    /// Reads the route of a request.
    ///
    /// # Errors
    /// REQUEST_MALFORMED: not a JSON object, or no valid `model`.
    pub fn read(body: Bytes) -> Result<Self, Failure> {
        let (route, members) = match split(&body) {
            Ok((route, members)) => (route, members),
            Err(Odd) => (selector(&body)?, None),
        };
        Ok(Self { body, route, members })
    }

    /// The text.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The same request, whose text is in `body`.
    pub(crate) fn with_body(&self, body: Bytes) -> Self {
        Self { body, ..self.clone() }
    }

    /// The fields that decide the request's route.
    pub fn routing(&self) -> transcode::Routing<'_> {
        let Routing { model, request_id, routing_key } = &self.route;
        transcode::Routing { model: Some(model), request_id, routing_key }
    }

    /// Checks that the body is JSON. A body that is not is otherwise refused when it is packed.
    ///
    /// # Errors
    /// REQUEST_MALFORMED.
    pub fn check(&self) -> Result<(), Failure> {
        selector(&self.body).map(drop)
    }
}

impl Metered<'_> {
    /// As [`Plan::pack`], for a request in JSON.
    ///
    /// # Errors
    /// As [`Plan::pack`], and those of the meter. A body with too many treatments is refused before
    /// the rest of it is read.
    pub fn pack_json(self, request: &Request, limits: &Limits) -> Result<Packed, Failure> {
        let call = Call { meter: self.meter, ..Call::new(limits) };
        self.plan.pack_json_traced(request, &call).map(|(packed, _)| packed)
    }
}

impl Plan {
    /// [`Metered::pack_json`] without a meter.
    ///
    /// # Errors
    /// As there.
    pub fn pack_json(&self, request: &Request, limits: &Limits) -> Result<Packed, Failure> {
        self.unmetered().pack_json(request, limits)
    }

    /// Packs a request in JSON; the trace is empty unless the call is traced.
    pub(crate) fn pack_json_traced(
        &self,
        request: &Request,
        call: &Call<'_>,
    ) -> Result<(Packed, Trace), Failure> {
        check_users(1, call.limits)?;
        let Request { body, route, members } = request;
        let packed = match members {
            Some(members) => pack::pack(self, (body, members), &route.request_id, call),
            None => Err(Stop::Odd),
        };
        match packed {
            Ok(packed) => Ok(packed),
            Err(Stop::Refused(failure)) => Err(*failure),
            Err(Stop::Odd) => odd::pack(self, body, call),
        }
    }
}

/// The keys of a request.
const KEYS: [&[u8]; 6] =
    [b"model", b"request_id", b"routing_key", b"user", b"treatments", b"options"];

/// Splits a body; there are no members if it has keys that no request has.
fn split(body: &[u8]) -> Read<(Routing, Option<Members>)> {
    if !is_ascii(body) && std::str::from_utf8(body).is_err() {
        return Err(Odd);
    }
    let (mut ranges, mut items, mut strange) = ([const { None }; KEYS.len()], 0, false);
    let mut cursor = Cursor::new(body);
    cursor.object(|key, cursor| {
        let (key, before) = (key.plain().ok_or(Odd)?, cursor.rest);
        let held = skip(cursor)?;
        let Some(index) = KEYS.iter().position(|known| *known == key) else {
            strange = true;
            return Ok(());
        };
        if index == TREATMENTS {
            items = held;
        }
        let range = body.len() - before.len()..body.len() - cursor.rest.len();
        if ranges[index].replace(range).is_some() { Err(Odd) } else { Ok(()) }
    })?;
    cursor.end()?;
    let [model, request_id, routing_key, user, treatments, options] = ranges;
    let text = |range: Option<Range<usize>>| {
        range.map_or(Ok(String::new()), |range| read_text(&body[range]))
    };
    let (request_id, routing_key) = (text(request_id)?, text(routing_key)?);
    let model = read_small(&body[model.ok_or(Odd)?]).map_err(|_| Odd)?;
    let model = read_model(&Node { path: String::new(), value: &model }).map_err(|_| Odd)?;
    let members = Members { user, treatments, options, count: items };
    Ok((Routing { model, request_id, routing_key }, (!strange).then_some(members)))
}

/// The position of `treatments` in [`KEYS`].
const TREATMENTS: usize = 4;

widest! {
    /// True if all bytes of the body are ASCII.
    fn is_ascii(body: &[u8]) -> bool = all_ascii;
}

#[inline(always)]
fn all_ascii(body: &[u8]) -> bool {
    // The inner loop has no early exit, so that the compiler vectorizes it.
    body.chunks(1024).all(|block| block.iter().fold(0, |all, byte| all | byte) < 0x80)
}

/// Skips a value; returns the number of arrays and objects directly in it.
fn skip(cursor: &mut Cursor<'_>) -> Read<usize> {
    if !matches!(cursor.peek(), Some(b'{' | b'[')) {
        return cursor.value(0).map(|()| 0);
    }
    let skipped = scan::skip(cursor.rest).ok_or(Odd)?;
    cursor.rest = &cursor.rest[skipped.length..];
    Ok(skipped.items)
}

/// A string; null is read as the empty string.
fn read_text(text: &[u8]) -> Read<String> {
    if text == b"null" {
        return Ok(String::new());
    }
    let text = Cursor::new(text).text()?.read()?.into_owned();
    String::from_utf8(text).map_err(|_| Odd)
}
