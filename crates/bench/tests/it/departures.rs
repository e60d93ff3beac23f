//! Connections that the server closes gracefully (GOAWAY), as it does at shutdown.

use std::time::Duration;

use outrigger_bench::{Job, Load};

use crate::servers::{ControlPlane, Package, model_job, rate, run};

const AGE: Duration = Duration::from_millis(100);

#[test]
fn a_closed_loop_continues_on_new_connections() {
    let server = ControlPlane::restless(AGE);
    let job = model_job(server.grpc, &Package::linear(), None, Load::Max);
    let duration = Duration::from_secs(1);
    let report = run(&Job { connections: 1, in_flight: Some(4), duration, ..job });
    // One connection tries the requests, one is open at the start, and one is opened as
    // the loop ends.
    assert!(server.callers() > 3, "{report}");
}

#[test]
fn no_request_fails_when_the_server_closes_connections_gracefully() {
    let server = ControlPlane::restless(AGE);
    for load in [Load::Max, rate(1000.0)] {
        let job = model_job(server.grpc, &Package::linear(), None, load);
        let report = run(&Job { duration: Duration::from_secs(1), ..job });
        assert!(report.ok > 0 && report.errors.is_empty(), "{report}");
    }
    assert!(server.callers() > 6, "{}", server.callers());
}
