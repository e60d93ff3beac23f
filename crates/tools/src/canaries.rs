//! The canaries of a server: `outrigger canary`.

pub mod render;

use outrigger_core::{ModelName, Selector};
use outrigger_proto::outrigger::v1::{
    AbortCanaryRequest, ListCanariesRequest, ListCanariesResponse, PromoteCanaryRequest,
    canary_service_client::CanaryServiceClient,
};

use crate::{Access, Error, ModelArgument, access::Connection};

/// A connection to a server's CanaryService.
#[derive(Debug, Clone)]
pub struct Canaries {
    client: CanaryServiceClient<Connection>,
}

/// A decision about a canary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The model, with the live tag if it is not the default one.
    pub model: ModelArgument,
    /// The person who decides.
    pub by: String,
    /// The reason.
    pub reason: String,
}

impl Decision {
    /// The model's name and the live tag; an empty tag means the default one.
    fn target(&self) -> Result<(String, String), Error> {
        let tag = match &self.model.version {
            None => String::new(),
            Some(Selector::Tag(tag)) => tag.to_string(),
            Some(Selector::Digest(_)) => {
                let message = "a canary is named by its model and the live tag, not by a digest";
                return Err(Error::Usage(message.to_owned()));
            }
        };
        Ok((self.model.name.to_string(), tag))
    }
}

impl Canaries {
    /// Connects to `address`: `host:port`, `http://host:port` or `https://host:port`.
    pub async fn connect(address: &str, access: &Access) -> Result<Self, Error> {
        Ok(Self { client: CanaryServiceClient::new(access.connect(address).await?) })
    }

    /// The canaries of one model or of all, with recent decisions.
    pub async fn list(&mut self, model: Option<&ModelName>) -> Result<ListCanariesResponse, Error> {
        let model = model.map(ToString::to_string).unwrap_or_default();
        Ok(self.client.list_canaries(ListCanariesRequest { model }).await?.into_inner())
    }

    /// Promotes a canary.
    pub async fn promote(&mut self, decision: Decision) -> Result<(), Error> {
        let (model, tag) = decision.target()?;
        let Decision { by, reason, .. } = decision;
        self.client.promote_canary(PromoteCanaryRequest { model, tag, by, reason }).await?;
        Ok(())
    }

    /// Rolls back a canary.
    pub async fn abort(&mut self, decision: Decision) -> Result<(), Error> {
        let (model, tag) = decision.target()?;
        let Decision { by, reason, .. } = decision;
        self.client.abort_canary(AbortCanaryRequest { model, tag, by, reason }).await?;
        Ok(())
    }
}
