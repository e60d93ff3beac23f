//! Checks 24 to 29: gRPC.

use bytes::Bytes;
use outrigger_oip_client::{Class, Cut, Form, ModelRef};
use outrigger_proto::inference::{InferTensorContents, ModelInferRequest, ModelMetadataResponse};
use outrigger_testkit::oip::{Answer, Seen, identity};
use prost::Message as _;

use crate::harness::{fault, grpc, of, request, soon, tensor, values};

#[tokio::test]
async fn check_24_no_input_has_contents_beside_raw_ones() {
    let (server, client) = grpc(identity::grpc).await;
    let reply = client.infer(&request(&[1.0, 2.0])).await.expect("an answer");
    assert_eq!((reply.form, values(&reply)), (Form::Grpc, vec![1.0, 2.0]));
    let seen = server.seen();
    let sent = ModelInferRequest::decode(seen[0].body.clone()).expect("a message");
    assert_eq!(sent.raw_input_contents.len(), 1);
    assert!(sent.inputs.iter().all(|input| input.contents.is_none()));
    assert!(!sent.id.is_empty());
}

#[tokio::test]
async fn check_25_empty_contents_beside_raw_ones_are_ignored() {
    let (_server, client) = grpc(|seen| {
        identity::grpc_with(seen, |reply| {
            reply.outputs[0].contents = Some(InferTensorContents::default());
        })
    })
    .await;
    let reply = client.infer(&request(&[1.0, 2.0])).await.expect("an answer");
    assert_eq!(values(&reply), [1.0, 2.0]);
}

#[tokio::test]
async fn check_26_raw_contents_of_empty_outputs_may_be_missing() {
    let (server, client) =
        grpc(|seen| identity::grpc_with(seen, |reply| drop(reply.raw_output_contents.remove(0))))
            .await;
    let mut inputs = of(vec![tensor("a", &[0], &[]), tensor("b", &[1], &[2.0])]);
    inputs.rows = None;
    let reply = client.infer(&inputs).await.expect("an answer");
    assert!(reply.outputs[0].data.is_empty());
    assert_eq!(&reply.outputs[1].data[..], 2.0_f32.to_le_bytes());
    server.script(|seen| {
        identity::grpc_with(seen, |reply| reply.raw_output_contents.push(Bytes::new()))
    });
    assert_eq!(fault(&client).await.class, Class::Ambiguous, "more raw contents than outputs");
}

#[tokio::test]
async fn check_27_answers_of_more_than_4_mib_are_read() {
    let (_server, client) = grpc(identity::grpc).await;
    let numbers = vec![1.0; (5 << 20) / 4];
    let reply = client.infer(&request(&numbers)).await.expect("an answer");
    assert_eq!(values(&reply).len(), numbers.len());
}

/// The script of a server that takes messages of up to `most` bytes.
fn limited(most: usize) -> impl Fn(&Seen) -> Answer + Send + Sync {
    move |seen| match seen.body.len() {
        size if size > most => {
            let message = format!("Received message larger than max ({size} vs. {most})");
            Answer::Status(8, message)
        }
        _ => identity::grpc(seen),
    }
}

#[tokio::test]
async fn check_27_the_limit_of_a_server_is_found_and_the_batch_cut() {
    let (server, client) = grpc(limited(4096)).await;
    let numbers: Vec<f32> = (0..2000_u16).map(f32::from).collect();
    for _ in 0..2 {
        let reply = client.infer(&request(&numbers)).await.expect("an answer");
        assert_eq!((values(&reply), &*reply.outputs[0].shape), (numbers.clone(), &[2000, 1][..]));
    }
    let over = server.seen().iter().filter(|seen| seen.body.len() > 4096).count();
    assert_eq!(over, 1, "the limit is remembered");
}

#[tokio::test]
async fn check_27_a_request_that_cannot_be_cut_is_refused() {
    let (server, client) = grpc(limited(4096)).await;
    let row = tensor("x", &[1, 2000], &[1.0; 2000]);
    let cut = Class::TooLarge(Cut { rows: None, bytes: Some(4096) });
    for _ in 0..2 {
        assert_eq!(client.infer(&of(vec![row.clone()])).await.expect_err("refused").class, cut);
    }
    assert_eq!(server.seen().len(), 1, "the second one is not sent");
}

#[tokio::test]
async fn check_28_each_call_has_a_deadline() {
    let (server, client) = grpc(identity::grpc).await;
    client.infer(&request(&[1.0])).await.expect("an answer");
    let seen = server.seen();
    let timeout = seen[0].headers["grpc-timeout"].to_str().expect("text");
    assert!(timeout.ends_with('m'), "{timeout}");
}

#[tokio::test]
async fn check_29_a_field_of_another_type_in_the_metadata_does_no_harm() {
    let (_server, client) = grpc(|_| {
        let metadata = ModelMetadataResponse { name: "m".to_owned(), ..Default::default() };
        // MLServer's `parameters`: a map from names to messages, where the protocol has strings.
        let entry = [&b"\x0a\x01k\x12\x04\x0a\x02\xff\xfe"[..]].concat();
        let field = [&[(6 << 3) | 2, entry.len() as u8][..], &entry].concat();
        Answer::Message([metadata.encode_to_vec(), field].concat().into())
    })
    .await;
    let model = ModelRef { name: "m", version: None };
    assert_eq!(client.metadata(0, model, soon()).await.expect("metadata").name, "m");
}
