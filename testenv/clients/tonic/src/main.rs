//! Makes the calls that are recorded, over tonic.

use std::{error::Error, time::Duration};

use tonic::{Request, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

async fn call(channel: Channel, length: usize) -> Result<(), Box<dyn Error>> {
    let mut client = Grpc::new(channel);
    client.ready().await?;
    let mut request = Request::new("r".repeat(length));
    request.set_timeout(Duration::from_secs(10));
    let path = PathAndQuery::from_static("/recorded.Service/Call");
    let codec: ProstCodec<String, String> = ProstCodec::default();
    client.unary(request, path, codec).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).ok_or("no address")?;
    let channel = Channel::from_shared(format!("http://{server}"))?.connect().await?;
    call(channel.clone(), 10).await?;
    let (one, other) = tokio::join!(call(channel.clone(), 700), call(channel, 900));
    one.and(other)
}
