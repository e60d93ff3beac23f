//! Jobs against scripted hosts.
//!
//! The checks of clients of the Open Inference Protocol that are a batch client's, by number. Those
//! before 34, and 38, 39 and 46, are tests of the crate `oip-client`.
//!
//! | check | test here | in the crate `dispatch`, in virtual time |
//! |---|---|---|
//! | 34 a poison row is isolated in few calls | `checks::check_34_…` | `evidence::check_34_…` |
//! | 35 a row that ends a host stops after two | `checks::check_35_…` | `evidence::check_35_…` |
//! | 36 a dead letter has its history | `checks::check_36_…` | `evidence::check_36_…` |
//! | 37 too many bad rows stop the job | `checks::check_37_…`, `faults::a_job_with_too_many_dead_rows_stops` | `evidence::check_37_…` |
//! | 38 a host that is ready and fails is left out | `runs::a_host_that_fails_is_left_to_the_others` | `hosts::check_38_…` |
//! | 40 hosts come and go | `names::check_40_…` | `hosts::check_40_…` |
//! | 41 a slow host does not hold up the end | `checks::check_41_…` | `hosts::check_41_…`, `figures::check_41_…` |
//! | 42 no standstill when all rows are put back | `checks::check_42_…` | `seeds::check_42_…` |
//! | 43 the batch size changes | `checks::check_43_…` | |
//! | 44 kills at every step of the commit | `kills::check_44_…` | |
//! | 45 two workers with one chunk | `checks::check_45_…` | |

mod checks;
mod compactions;
mod damage;
mod diffs;
mod disk;
mod faults;
mod formats;
mod harness;
mod hours;
mod kills;
mod language;
mod live;
mod memory;
mod names;
mod objects;
mod outage;
mod partial;
mod parts;
mod places;
mod runs;
mod scripted;
mod served;
mod shapes;
mod starts;
mod suspects;
mod verifications;
mod versions;
mod workers;
