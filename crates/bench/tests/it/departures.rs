//! Connections that a server sends away, as it does when it shuts down.

use std::time::Duration;

use outrigger_bench::{Job, Load};

use crate::servers::{ControlPlane, Package, model_job, run};

const AGE: Duration = Duration::from_millis(100);

#[test]
fn a_closed_loop_comes_back_on_new_connections() {
    let server = ControlPlane::restless(AGE);
    let job = model_job(server.grpc, &Package::linear(), None, Load::Max);
    let duration = Duration::from_secs(1);
    let report = run(&Job { connections: 1, in_flight: Some(4), duration, ..job });
    // One to try the requests on, one to begin with, and one that is made when the loop
    // has ended.
    assert!(server.callers() > 3, "{report}");
}
