//! The state of a server's models: `outrigger models`.

pub mod render;

use std::time::Duration;

use outrigger_proto::outrigger::v1::{
    GetModelRequest, ListModelsRequest, LoadModelRequest, Model, ServedModel, UnloadModelRequest,
    model_service_client::ModelServiceClient,
};

use crate::{Access, Error, ModelArgument, access::Connection};

/// A connection to a server's ModelService.
#[derive(Debug, Clone)]
pub struct Models {
    client: ModelServiceClient<Connection>,
}

impl Models {
    /// Connects to `address`: `host:port`, `http://host:port` or `https://host:port`.
    pub async fn connect(address: &str, access: &Access) -> Result<Self, Error> {
        Ok(Self { client: ModelServiceClient::new(access.connect(address).await?) })
    }

    /// All models the server knows.
    pub async fn list(&mut self) -> Result<Vec<Model>, Error> {
        Ok(self.client.list_models(ListModelsRequest {}).await?.into_inner().models)
    }

    /// One model, with the history of its versions.
    pub async fn get(&mut self, model: ModelArgument) -> Result<Model, Error> {
        let request = GetModelRequest { name: model.name.to_string() };
        let response = self.client.get_model(request).await?.into_inner();
        Ok(response.model.unwrap_or_default())
    }

    /// Loads a version and waits for it, at most for `timeout`.
    pub async fn load(
        &mut self,
        model: ModelArgument,
        timeout: Duration,
    ) -> Result<ServedModel, Error> {
        let mut request = tonic::Request::new(LoadModelRequest { model: Some(model.into()) });
        request.set_timeout(timeout);
        let response = self.client.load_model(request).await?.into_inner();
        Ok(response.model.unwrap_or_default())
    }

    /// Unloads a version from the engine; with `delete`, also deletes it from the disk.
    pub async fn unload(&mut self, model: ModelArgument, delete: bool) -> Result<(), Error> {
        let request = UnloadModelRequest { model: Some(model.into()), delete };
        self.client.unload_model(request).await?;
        Ok(())
    }
}
