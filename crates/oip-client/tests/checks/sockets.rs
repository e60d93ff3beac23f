//! The options of the client's connections. The protocol has no check of them.

use std::{
    fs,
    net::SocketAddr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use outrigger_testkit::oip::{Protocol, Server, identity};
use rustix::{
    net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl, tcp_user_timeout},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

use crate::harness::{client, request};

/// With a limit of unacknowledged data the kernel would break the connection to a server that works
/// on other requests and reads nothing of the next one.
#[tokio::test]
async fn a_server_may_leave_a_request_unread_and_one_that_vanished_is_noticed() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let answer = match protocol {
            Protocol::Http1 => identity::binary,
            Protocol::Http2 => identity::grpc,
        };
        let (sender, found) = mpsc::channel();
        let address = Arc::new(OnceLock::new());
        let place = Arc::clone(&address);
        let server = Server::start(protocol, move |seen| {
            // Over HTTP/1.1 the connection may be closed after the answer.
            sender.send(connections_to(*place.get().expect("set before"))).expect("a receiver");
            answer(seen)
        })
        .await;
        address.set(server.address().parse().expect("an address")).expect("once");
        client(&[&server]).infer(&request(&[1.0])).await.expect("an answer");
        let connections: Vec<_> = found.try_iter().flatten().collect();
        assert!(!connections.is_empty(), "{protocol:?}");
        for connection in connections {
            let limit = tcp_user_timeout(&connection).expect("an option");
            assert_eq!(limit, 0, "{protocol:?}: milliseconds, of which 0 are no limit");
            assert!(socket_keepalive(&connection).expect("an option"), "{protocol:?}");
            let idle = tcp_keepidle(&connection).expect("an option");
            let interval = tcp_keepintvl(&connection).expect("an option");
            let rest = interval * tcp_keepcnt(&connection).expect("an option");
            assert_eq!(idle + rest, Duration::from_secs(60), "{protocol:?}");
        }
    }
}

/// Further descriptors of the connections of this process to a server.
fn connections_to(address: SocketAddr) -> Vec<OwnedFd> {
    let port = format!(":{:04X}", address.port());
    // proc_pid_net(5): the third field is the peer, the fourth the state (1: established), and the
    // tenth the inode.
    let table = fs::read_to_string("/proc/self/net/tcp").expect("the connections");
    let connections = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = connections.filter(|it| it[2].ends_with(&port) && it[3] == "01");
    found.filter_map(|it| duplicate(&format!("socket:[{}]", it[9]))).collect()
}

/// Another descriptor of what has this name in /proc; `None` if it is closed.
fn duplicate(name: &str) -> Option<OwnedFd> {
    let mut paths = fs::read_dir("/proc/self/fd").ok()?.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| fs::read_link(path).is_ok_and(|it| it == Path::new(name));
    let number = paths.find(is_it)?.file_name()?.to_str()?.parse().ok()?;
    let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()
}
