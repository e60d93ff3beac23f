//! Time by operation, from the trace of the local engine.

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use outrigger_engine::step_stats::Times;
use serde::Serialize;

use crate::exit::Exit;

/// The number of passes over the golden cases, so that the times are means of more than one run.
pub(crate) const PASSES: u32 = 20;
/// The most nodes that the text lists.
const NODES: usize = 20;

/// The mean times of a run, by operation and by node of the graph.
#[derive(Debug, Serialize)]
pub(crate) struct Operations {
    /// Runs that were traced, without the first one.
    runs: u64,
    /// The time of a run, with that of tracing it, in microseconds.
    run_us: f64,
    /// The time of all operations of a run, in microseconds.
    operations_us: f64,
    /// Operations by type, the slowest first.
    by_operation: Vec<ByOperation>,
    /// Nodes of the optimised graph, the slowest first.
    by_node: Vec<ByNode>,
}

/// All nodes of one type.
#[derive(Debug, Serialize)]
struct ByOperation {
    operation: String,
    #[serde(flatten)]
    cost: Cost,
}

/// One node.
#[derive(Debug, Serialize)]
struct ByNode {
    node: String,
    operation: String,
    #[serde(flatten)]
    cost: Cost,
}

/// The part of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct Cost {
    /// Executions in a run.
    executions: f64,
    /// The time in a run, in microseconds.
    us: f64,
    /// The share of the time of all operations, from 0 to 1.
    share: f64,
}

impl Operations {
    /// Reads the file that the engine writes; `None` if the engine was not started, or ran the model
    /// at most once, because a check failed.
    pub(crate) fn read(file: &Path) -> Result<Option<Self>, Exit> {
        let content = match fs::read(file) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Exit::failed(error)),
        };
        let times = serde_json::from_slice(&content).map_err(Exit::failed)?;
        Ok(Self::of(&times))
    }

    /// The means of the runs; `None` without runs.
    fn of(times: &Times) -> Option<Self> {
        let runs = Some(times.runs).filter(|&runs| runs > 0)? as f64;
        let total: u64 = times.nodes.values().map(|node| node.nanos).sum();
        let cost = |executions: u64, nanos: u64| Cost {
            executions: executions as f64 / runs,
            us: nanos as f64 / 1000.0 / runs,
            share: if total == 0 { 0.0 } else { nanos as f64 / total as f64 },
        };
        let mut sums = BTreeMap::<&str, (u64, u64)>::new();
        for node in times.nodes.values() {
            let (executions, nanos) = sums.entry(&node.operation).or_default();
            *executions += node.executions;
            *nanos += node.nanos;
        }
        let by_operation = sums.into_iter().map(|(operation, (executions, nanos))| ByOperation {
            operation: operation.to_owned(),
            cost: cost(executions, nanos),
        });
        let by_node = times.nodes.iter().map(|(name, node)| ByNode {
            node: name.clone(),
            operation: node.operation.clone(),
            cost: cost(node.executions, node.nanos),
        });
        Some(Self {
            runs: times.runs,
            run_us: times.run_nanos as f64 / 1000.0 / runs,
            operations_us: total as f64 / 1000.0 / runs,
            by_operation: slowest_first(by_operation, |row| row.cost),
            by_node: slowest_first(by_node, |row| row.cost),
        })
    }
}

fn slowest_first<T>(rows: impl Iterator<Item = T>, cost: impl Fn(&T) -> Cost) -> Vec<T> {
    let mut rows: Vec<T> = rows.collect();
    rows.sort_by(|one, other| cost(other).us.total_cmp(&cost(one).us));
    rows
}

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, run_us, operations_us, by_operation, by_node } = self;
        writeln!(
            f,
            "\nmean of {runs} traced runs: {run_us:.1} us, of which {operations_us:.1} us in operations"
        )?;
        let rows = by_operation.iter().map(|row| (row.operation.as_str(), &row.cost, ""));
        write_table(f, "operation", rows)?;
        writeln!(f)?;
        let slowest = by_node.iter().take(NODES);
        let rows = slowest.map(|row| (row.operation.as_str(), &row.cost, row.node.as_str()));
        write_table(f, "node", rows)?;
        match by_node.len().saturating_sub(NODES) {
            0 => Ok(()),
            more => writeln!(f, "and {more} faster nodes"),
        }
    }
}

/// Writes a table, whose last column is empty or the name of a node.
fn write_table<'a>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    rows: impl Iterator<Item = (&'a str, &'a Cost, &'a str)>,
) -> fmt::Result {
    writeln!(f, "time by {title:20} executions         us   share")?;
    for (operation, Cost { executions, us, share }, node) in rows {
        let percent = share * 100.0;
        let line = format!("{operation:28} {executions:10.1} {us:10.1} {percent:5.1} %  {node}");
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use outrigger_engine::step_stats::Node;

    use super::*;

    fn node(operation: &str, executions: u64, nanos: u64) -> Node {
        Node { operation: operation.to_owned(), executions, nanos }
    }

    fn times() -> Times {
        let nodes = [
            ("a".to_owned(), node("Add", 4, 1000)),
            ("b".to_owned(), node("MatMul", 4, 20_000)),
            ("c".to_owned(), node("Add", 8, 11_000)),
        ];
        Times { runs: 4, run_nanos: 40_000, nodes: nodes.into() }
    }

    #[test]
    fn times_are_means_of_a_run_with_the_slowest_first() {
        let operations = Operations::of(&times()).expect("runs");
        assert_eq!((operations.run_us, operations.operations_us), (10.0, 8.0));
        let by_operation = operations.by_operation.iter();
        let by_operation: Vec<_> = by_operation.map(|row| (&*row.operation, row.cost)).collect();
        assert_eq!(
            by_operation,
            [
                ("MatMul", Cost { executions: 1.0, us: 5.0, share: 0.625 }),
                ("Add", Cost { executions: 3.0, us: 3.0, share: 0.375 }),
            ]
        );
        let by_node: Vec<_> = operations.by_node.iter().map(|row| &*row.node).collect();
        assert_eq!(by_node, ["b", "c", "a"]);
    }

    #[test]
    fn without_runs_there_are_no_times() {
        assert!(Operations::of(&Times::default()).is_none());
    }

    #[test]
    fn the_text_lists_the_slowest_nodes_only() {
        let mut many = times();
        many.nodes.extend((0..NODES).map(|at| (format!("more-{at}"), node("Add", 4, 100))));
        let text = Operations::of(&many).expect("runs").to_string();
        assert!(text.contains("MatMul                              1.0        5.0"), "{text}");
        assert!(text.ends_with("and 3 faster nodes\n"), "{text}");
    }
}
