//! Log lines and metrics that wait until the routes that they describe are in force.

/// Log lines and metrics about changes of routes. They are due once those routes are in force, in
/// the order in which they were added.
#[derive(Default)]
pub struct Reports(Vec<Box<dyn FnOnce() + Send>>);

impl Reports {
    /// Adds a report.
    pub fn add(&mut self, report: impl FnOnce() + Send + 'static) {
        self.0.push(Box::new(report));
    }

    /// Writes all reports.
    pub fn emit(&mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(|report| report());
    }
}
