//! Output formats: tables for people, JSON for programs.

use std::fmt::{self, Write as _};

use outrigger_core::printable;
use outrigger_proto::outrigger::v1::FILE_DESCRIPTOR_SET;
use prost_reflect::{DescriptorPool, DynamicMessage};

/// Left-aligned columns, as wide as their widest cell.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a heading.
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|cell| cell.to_string()).collect()] }
    }

    /// Adds a row of as many cells as the heading has. A cell is one line, whatever it has.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(printable).collect());
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..columns).map(width).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                write!(line, "{cell:width$}  ")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The answer of `POST /v1/predict` as a table with one row per treatment.
pub fn scores(answer: &serde_json::Value) -> String {
    let Some(scores) = answer["scores"].as_array() else {
        return format!("{answer:#}\n");
    };
    let mut table = Table::new(&["TREATMENT", "SCORE"]);
    for (row, score) in scores.iter().enumerate() {
        // A treatment without an id is shown by its index in the request. Answers
        // without indices are in the order of the request.
        let index = || score["index"].as_u64().unwrap_or(row as u64).to_string();
        let id = score["id"].as_str().map_or_else(index, str::to_owned);
        table.row([id, score["score"].to_string()]);
    }
    table.to_string()
}

/// A message of `outrigger.v1` in protobuf's JSON form, with the names of the
/// .proto file. `name` is the message's, such as `Model`.
pub fn message_json(name: &str, message: &impl prost::Message) -> serde_json::Value {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("our own descriptor set");
    let descriptor = pool
        .get_message_by_name(&format!("outrigger.v1.{name}"))
        .expect("a message of outrigger.v1");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("the message the name stands for");
    let options = prost_reflect::SerializeOptions::new().use_proto_field_name(true);
    dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .expect("protobuf's JSON form is total")
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::Model;

    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["MODEL", "STATE"]);
        table.row(["a-long-name".to_owned(), "NEW".to_owned()]);
        assert_eq!(table.to_string(), "MODEL        STATE\na-long-name  NEW\n");
        table.row(["a\nb".to_owned(), "\u{1b}[2J".to_owned()]);
        assert!(table.to_string().ends_with("\na\\nb         \\u{1b}[2J\n"), "{table}");
    }

    #[test]
    fn treatments_without_ids_are_shown_by_their_index_in_the_request() {
        let best =
            serde_json::json!({"scores": [{"index": 7, "score": 0.5}, {"id": "a", "score": 0}]});
        assert_eq!(scores(&best), "TREATMENT  SCORE\n7          0.5\na          0\n");
        let all = serde_json::json!({"scores": [{"score": 2}, {"score": 1}]});
        assert_eq!(scores(&all), "TREATMENT  SCORE\n0          2\n1          1\n");
    }

    #[test]
    fn messages_keep_the_names_of_the_proto_file() {
        let model = Model { name: "churn".to_owned(), ..Model::default() };
        assert_eq!(message_json("Model", &model), serde_json::json!({"name": "churn"}));
    }
}
