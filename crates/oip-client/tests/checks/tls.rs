//! TLS, over gRPC and over HTTP.

use std::{io::Write as _, net::SocketAddr};

use outrigger_oip_client::{Class, Config, Form, HostConfig};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use tempfile::NamedTempFile;

use crate::harness::{config, connect, fault, request, values};

type Script = fn(&Seen) -> Answer;

/// The configuration for a server with TLS, which trusts `authority`.
fn trusting(server: &Server, authority: &str) -> (Config, NamedTempFile) {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(authority.as_bytes()).expect("written");
    let hosts = vec![HostConfig::new(format!("https://{}", server.address()))];
    (Config { hosts, ca: Some(file.path().to_owned()), ..config(&[]) }, file)
}

#[tokio::test]
async fn servers_with_tls_are_called_in_each_form() {
    let grpc = Server::start_tls(Protocol::Http2, identity::grpc).await;
    let binary = Server::start_tls(Protocol::Http1, identity::binary).await;
    for ((server, authority), form) in [(grpc, Form::Grpc), (binary, Form::Binary)] {
        let (config, _file) = trusting(&server, &authority);
        let reply = connect(config).infer(&request(&[1.0, 2.0])).await.expect("an answer");
        assert_eq!((reply.form, values(&reply)), (form, vec![1.0, 2.0]));
    }
}

#[tokio::test]
async fn a_server_with_an_unknown_authority_gets_no_request() {
    let (_other, authority) = Server::start_tls(Protocol::Http2, identity::grpc).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let (server, _) = Server::start_tls(protocol, identity::grpc).await;
        let (config, _file) = trusting(&server, &authority);
        let client = connect(Config { attempts: 1, ..config });
        assert_eq!(fault(&client).await.class, Class::Unavailable);
        assert!(server.seen().is_empty());
    }
}

#[tokio::test]
async fn a_certificate_has_the_name_of_a_host_that_is_called_by_its_address() {
    let answers: [Script; 2] = [identity::binary, identity::grpc];
    for (protocol, answer) in [Protocol::Http1, Protocol::Http2].into_iter().zip(answers) {
        let (server, authority) = Server::start_tls(protocol, answer).await;
        let address: SocketAddr = server.address().parse().expect("an address");
        let called = async |name: &str| {
            let (config, _file) = trusting(&server, &authority);
            let host = HostConfig {
                address: Some(address.ip()),
                ..HostConfig::new(format!("https://{name}:{}", address.port()))
            };
            let client = connect(Config { hosts: vec![host], attempts: 1, ..config });
            client.infer(&request(&[1.0, 2.0])).await
        };
        let reply = called("localhost").await.expect("an answer");
        assert_eq!(values(&reply), [1.0, 2.0]);
        // The name is not looked up, and is not that of the certificate.
        let failure = called("triton.invalid").await.expect_err("another name");
        assert_eq!(failure.class, Class::Unavailable);
        assert!(failure.to_string().contains("triton.invalid"), "{failure}");
        assert_eq!(server.seen().len(), 1);
    }
}
