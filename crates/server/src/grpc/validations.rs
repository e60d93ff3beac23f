//! ValidationService: scores files of rows, on the admin listener only.

use outrigger_proto::outrigger::v1::{
    ValidateFileRequest, validation_service_server::ValidationService,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};

use super::Access;
use crate::{
    audit::{Record, Target, Verb},
    call::Call,
    validation::{Event, Validation},
};

/// The service for one listener.
#[derive(Clone)]
pub(crate) struct Validations {
    validation: Validation,
    access: Access,
}

impl Validations {
    pub(crate) fn new(validation: Validation, access: Access) -> Self {
        Self { validation, access }
    }
}

#[async_trait]
impl ValidationService for Validations {
    type ValidateFileStream = ReceiverStream<Event>;

    async fn validate_file(
        &self,
        request: Request<ValidateFileRequest>,
    ) -> Result<Response<Self::ValidateFileStream>, Status> {
        let call = Call::of(request.extensions());
        let request = request.into_inner();
        let target = Target::version(request.model.as_ref());
        let begin = async |record: &mut Record| self.validation.begin(&call, request, record).await;
        let begun = self.access.change(&call, Verb::Validate, target, begin).await;
        call.conclude(begun.map(|events| Response::new(ReceiverStream::new(events))))
    }
}
