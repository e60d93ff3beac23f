//! Statistics of models, as Triton's extension `statistics` has them.

use serde::{Deserialize, Serialize};

/// The statistics of several models.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// One entry for each version of each model.
    pub model_stats: Vec<ModelStatistics>,
}

/// The statistics of one version of a model since it was loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelStatistics {
    /// The name that calls use.
    pub name: String,
    /// The version; empty if the server has no versions.
    pub version: String,
    /// The time of the last request, in milliseconds since 1970.
    pub last_inference: u64,
    /// Rows of successful requests.
    pub inference_count: u64,
    /// Runs of the model: fewer than requests, if the server batches them.
    pub execution_count: u64,
    /// The durations of requests, by stage.
    pub inference_stats: Durations,
}

/// The durations of requests, by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Durations {
    /// Successful requests as a whole.
    pub success: Duration,
    /// Failed requests as a whole.
    pub fail: Duration,
    /// The wait for the model.
    pub queue: Duration,
    /// Reading inputs.
    pub compute_input: Duration,
    /// Running the model.
    pub compute_infer: Duration,
    /// Writing outputs.
    pub compute_output: Duration,
}

/// A number of requests, and the sum of their durations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Duration {
    /// The number of requests.
    pub count: u64,
    /// The sum in nanoseconds.
    pub ns: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statistics_of_other_servers_are_read() {
        // Triton adds fields from time to time.
        let document = json!({"model_stats": [{
            "name": "m", "version": "1", "last_inference": 1, "inference_count": 8,
            "execution_count": 2, "memory_usage": [],
            "inference_stats": {"success": {"count": 4, "ns": 9}, "cache_hit": {"count": 0, "ns": 0}},
        }]});
        let statistics: Statistics = serde_json::from_value(document).expect("statistics");
        let model = &statistics.model_stats[0];
        assert_eq!((model.inference_count, model.execution_count), (8, 2));
        assert_eq!(model.inference_stats.success, Duration { count: 4, ns: 9 });
        assert_eq!(model.inference_stats.fail, Duration::default());
    }
}
