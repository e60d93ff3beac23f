//! The protocol of a job's hosts, and the settings that depend on it.

use std::{fmt, str::FromStr};

use outrigger_tables::Format;
use serde::{Deserialize, Serialize};

use super::Job;
use crate::Error;

/// The column with the name of a line of OpenAI's batches.
pub(crate) const CUSTOM_ID: &str = "custom_id";
/// The name in the status of models that lines name.
const MODEL: &str = "openai";

/// The protocol of the hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The Open Inference Protocol.
    #[default]
    Oip,
    /// OpenAI's API. A row is a line of its batches: `custom_id`, `method`, `url` and `body`.
    OpenAi,
}

/// The limits of each host that are counted in requests and tokens; none where a value is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// The most requests a minute.
    pub requests_per_minute: Option<u32>,
    /// The most tokens a minute, of prompts and answers.
    pub tokens_per_minute: Option<u32>,
    /// The tokens of the requests in flight from which on a host gets no further one.
    pub tokens_in_flight: Option<u32>,
}

impl Protocol {
    /// True if the hosts have language models.
    pub(crate) fn is_language(self) -> bool {
        self == Self::OpenAi
    }

    /// True for the default, which plans do not state.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "oip" => Ok(Self::Oip),
            "openai" => Ok(Self::OpenAi),
            _ => Err(format!("{text:?} is neither oip nor openai")),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oip => "oip",
            Self::OpenAi => "openai",
        })
    }
}

impl Job {
    /// The limits of each host in requests and tokens.
    pub(crate) fn quota(&self) -> Quota {
        Quota {
            requests_per_minute: self.requests_per_minute,
            tokens_per_minute: self.tokens_per_minute,
            tokens_in_flight: self.tokens_in_flight,
        }
    }

    /// Checks the settings that depend on the protocol. A job that retries another one has that of
    /// the first.
    ///
    /// # Errors
    /// The first value that is not valid.
    pub(super) fn check_protocol(&self) -> Result<(), Error> {
        let Quota { requests_per_minute, tokens_per_minute, tokens_in_flight } = self.quota();
        let quotas = [
            ("requests_per_minute", requests_per_minute),
            ("tokens_per_minute", tokens_per_minute),
            ("tokens_in_flight", tokens_in_flight),
        ];
        let is_language = self.protocol.is_language();
        for (key, value) in quotas {
            match value {
                Some(0) => return Err(Error::usage(format!("{key}: must be at least 1"))),
                Some(_) if !is_language && self.retry.is_none() => {
                    return Err(Error::usage(format!("{key}: needs protocol: openai")));
                }
                _ => {}
            }
        }
        if !is_language {
            return Ok(());
        }
        let unused = [
            ("model", !self.model.name.is_empty() || self.model.package.is_some()),
            ("inputs", !self.inputs.is_empty()),
            ("columns", !self.columns.is_empty()),
            ("outputs", !self.outputs.is_empty()),
        ];
        match unused.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => Err(Error::usage(format!(
                "{key}: has no meaning with protocol: openai, whose lines name model and input"
            ))),
            None => Ok(()),
        }
    }

    /// The job with the settings that lines of OpenAI's batches imply.
    #[must_use]
    pub(crate) fn for_lines(mut self) -> Self {
        if self.protocol.is_language() {
            MODEL.clone_into(&mut self.model.name);
            self.keys.get_or_insert_with(|| vec![CUSTOM_ID.to_owned()]);
            self.output_format.get_or_insert(Format::Jsonl);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(keys: &str) -> Result<(), Error> {
        Job::read(&format!("input: a.jsonl\noutput: out\nhosts: h:1\n{keys}\n"))?.check()
    }

    #[test]
    fn a_job_of_lines_names_no_model() {
        assert_eq!(checked("protocol: openai"), Ok(()));
        assert_eq!(checked("protocol: openai\ntokens_per_minute: 9\ntokens_in_flight: 1"), Ok(()));
        for (keys, fault) in [
            ("protocol: openai\nmodel: m", "model: "),
            ("protocol: openai\ninputs: {x: a}", "inputs: "),
            ("protocol: openai\ncolumns: {x: FP32}", "columns: "),
            ("protocol: openai\noutputs: {x: y}", "outputs: "),
            ("protocol: openai\nrequests_per_minute: 0", "at least 1"),
            ("model: m\ntokens_per_minute: 9", "needs protocol: openai"),
            ("protocol: grpc\nmodel: m", "grpc"),
            ("", "model: needs a name"),
        ] {
            let refused = checked(keys).expect_err(keys).to_string();
            assert!(refused.contains(fault), "{keys}: {refused}");
        }
    }

    #[test]
    fn a_protocol_has_one_name() {
        for protocol in [Protocol::Oip, Protocol::OpenAi] {
            let name = protocol.to_string();
            assert_eq!(name.parse(), Ok(protocol));
            assert_eq!(serde_json::json!(protocol), name);
        }
        assert!("grpc".parse::<Protocol>().is_err());
    }
}
