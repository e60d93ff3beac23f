//! The value of a feature that a model refused.

use std::cell::OnceCell;

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{PredictRequest, predict_request::User, value::Kind};
use prost::Message as _;

/// The most characters of a text that are shown.
const SHOWN: usize = 40;

/// A request that was sent, which is decoded when one of its values is refused.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    bytes: &'a [u8],
    message: OnceCell<Option<PredictRequest>>,
}

impl<'a> Sent<'a> {
    /// An encoded request.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, message: OnceCell::new() }
    }

    /// The value at the field that a failure names, as text; `None` if there is none, or a list.
    pub(crate) fn refused(&self, failure: &Failure) -> Option<String> {
        let path = &failure.violations.first()?.field;
        let request = self.message.get_or_init(|| PredictRequest::decode(self.bytes).ok());
        let request = request.as_ref()?;
        let (features, path) = match path.split_once("treatments[") {
            Some((_, path)) => {
                let (index, path) = path.split_once("].features")?;
                (&request.treatments.get(index.parse::<usize>().ok()?)?.features, path)
            }
            None => match &request.user {
                Some(User::UserFeatures(map)) => (&map.features, path.split_once("user")?.1),
                _ => return None,
            },
        };
        let (_, value) = features.iter().find(|(name, _)| *path == format!("[{name:?}]"))?;
        Some(match value.kind.as_ref()? {
            Kind::Text(text) => format!("{:?}", text.chars().take(SHOWN).collect::<String>()),
            Kind::Number(number) => number.to_string(),
            Kind::Real(real) => real.to_string(),
            Kind::Integer(integer) => integer.to_string(),
            Kind::Flag(flag) => flag.to_string(),
            _ => return None,
        })
    }
}
